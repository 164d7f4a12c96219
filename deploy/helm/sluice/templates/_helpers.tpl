{{/* Names. 40 characters leave room for what is appended to them: a DNS label has 63. */}}
{{- define "sluice.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "sluice.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "sluice.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "sluice.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The headless Service of the members. */}}
{{- define "sluice.members" -}}
{{- include "sluice.fullname" . }}-members
{{- end -}}

{{/* The Service of a listener: (list $ its-index its-name). The first one has the release's name. */}}
{{- define "sluice.service" -}}
{{- $root := index . 0 -}}
{{- include "sluice.fullname" $root }}{{ if gt (int (index . 1)) 0 }}-{{ index . 2 }}{{ end }}
{{- end -}}

{{/* How many members there are. */}}
{{- define "sluice.membersMax" -}}
{{- if eq .Values.mode "sidecar" }}{{ len .Values.sidecar.nodeIds }}{{ else }}{{ .Values.replicaCount }}{{ end }}
{{- end -}}

{{/* The ports of a listener's brokers, none with broker_host: (list $ its-table). */}}
{{- define "sluice.brokerPorts" -}}
{{- $root := index . 0 -}}
{{- $first := (index . 1).first_broker_port | default 19100 | int -}}
{{- if eq $root.Values.mode "sidecar" -}}
{{- range $root.Values.sidecar.nodeIds }}
- { id: {{ . }}, port: {{ add $first . }} }
{{- end }}
{{- else if not (index . 1).broker_host -}}
{{- range $id := until (ternary (index . 1).broker_id_max 63 (hasKey (index . 1) "broker_id_max") | int | add1 | int) }}
- { id: {{ $id }}, port: {{ add $first $id }} }
{{- end }}
{{- end }}
{{- end -}}

{{/* The host names of all members. */}}
{{- define "sluice.memberHosts" -}}
{{- if eq .Values.mode "sidecar" }}
{{- range .Values.sidecar.nodeIds }}
- {{ $.Values.sidecar.podPrefix }}-{{ . }}.{{ $.Values.sidecar.domain }}
{{- end }}
{{- else }}
{{- range $ordinal := until (int .Values.replicaCount) }}
- {{ include "sluice.fullname" $ }}-{{ $ordinal }}.{{ include "sluice.members" $ }}.{{ $.Release.Namespace }}.svc
{{- end }}
{{- end }}
{{- end -}}

{{/* Labels of a component: (list $ component). The selector is a part of them that never changes. */}}
{{- define "sluice.selector" -}}
app.kubernetes.io/name: {{ include "sluice.name" (index . 0) }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "sluice.labels" -}}
{{ include "sluice.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
{{- end -}}

{{/* The labels by which a Sluice's pod is known: a gateway's own, or the brokers'. */}}
{{- define "sluice.podLabels" -}}
{{- if eq .Values.mode "sidecar" -}}
{{ toYaml .Values.sidecar.podLabels }}
{{- else -}}
{{ include "sluice.selector" (list . "gateway") }}
{{- end -}}
{{- end -}}

{{- define "sluice.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "sluice.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{/* The target of docker/Dockerfile that the image is. */}}
{{- define "sluice.target" -}}
{{- $kept := or .Values.fleet.enabled (eq (.Values.config.quotas | default dict).store "topic") -}}
{{- .Values.image.target | default (ternary "fleet" "proxy" $kept) -}}
{{- end -}}

{{/* The image of the target. Its tag is the version, and the target behind it, but for "proxy". */}}
{{- define "sluice.image" -}}
{{- $target := include "sluice.target" . -}}
{{- $tag := ternary .Chart.AppVersion (printf "%s-%s" .Chart.AppVersion $target) (eq $target "proxy") -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default $tag) -}}
{{- end -}}

{{/* The seconds from a pod's deletion to SIGKILL. */}}
{{- define "sluice.graceSeconds" -}}
{{- $limits := .Values.config.limits | default dict -}}
{{- $drain := $limits.drain_seconds | default 20 | float64 | ceil | int -}}
{{- $capture := ternary 10 0 (not (empty (.Values.config.capture | default dict).directory)) -}}
{{- add (int .Values.preStopSeconds) $drain $capture 5 -}}
{{- end -}}

{{/* The option by which commands in Sluice's container reach its admin port; none for 127.0.0.1:19080 over HTTP. */}}
{{- define "sluice.adminOption" -}}
{{- if .Values.admin.tls.secretName -}}
{{ " " }}--admin https://127.0.0.1:{{ .Values.admin.port }}
{{- else if ne (int .Values.admin.port) 19080 -}}
{{ " " }}--admin 127.0.0.1:{{ .Values.admin.port }}
{{- end -}}
{{- end -}}

{{/* What is refused: it does not go together, or would be readable. */}}
{{- define "sluice.refuse" -}}
{{- range include "sluice.passwords" (list .Values.config "config") | trim | splitList " " | compact -}}
{{- $variable := printf "SLUICE_%s" (trimPrefix "config." . | replace "." "__" | upper) -}}
{{- fail (printf "%s: would be clear text in a ConfigMap; name a Secret instead: for config.cluster.password in cluster.password.secretName, for others in env, as %s" . $variable) -}}
{{- end -}}
{{- $target := include "sluice.target" . -}}
{{- if and (ne $target "proxy") (regexMatch "^v?[0-9]+([.][0-9]+)*$" .Values.image.tag) -}}
{{- fail (printf "image.tag: %s names the image of target proxy, but %s is needed: use %s-%s" .Values.image.tag $target .Values.image.tag $target) -}}
{{- end -}}
{{- if and .Values.console.enabled (regexMatch "^v?[0-9]+([.][0-9]+)*$" .Values.console.image.tag) -}}
{{- fail (printf "console.image.tag: %s names the image of target proxy: use %s-console" .Values.console.image.tag .Values.console.image.tag) -}}
{{- end -}}
{{- if and (include "sluice.asksForCertificate" .) (or .Values.console.enabled .Values.serviceMonitor.enabled) -}}
{{- fail "admin.tls.clientCa: the console and Prometheus have no client certificate; give them a token, admin.token.secretName, and leave config.admin.tls.client_auth out" -}}
{{- end -}}
{{- if and (gt (int (include "sluice.membersMax" .)) 1) (not .Values.fleet.enabled) (ne (.Values.config.quotas | default dict).scope "broker") -}}
{{- fail "replicaCount > 1 without fleet.enabled: each pod would give every client its whole budget" -}}
{{- end -}}
{{- if and .Values.networkPolicy.brokers.enabled (not .Values.networkPolicy.brokers.podLabels) -}}
{{- fail "networkPolicy.brokers.podLabels: must be the labels of the brokers' pods" -}}
{{- end -}}
{{- if and (eq .Values.mode "sidecar") (not .Values.sidecar.podLabels) -}}
{{- fail "sidecar.podLabels: must be the labels of the brokers' pods" -}}
{{- end -}}
{{- $names := list -}}
{{- range .Values.config.listeners -}}
{{- $names = append $names (.name | default "clients") -}}
{{- end -}}
{{- range $name, $listener := .Values.listeners -}}
{{- if and (not (has $name $names)) (or (ne $name "clients") ($listener.tls | default dict).secretName) -}}
{{- fail (printf "listeners.%s: config.listeners has none of this name, but %s" $name (join ", " $names)) -}}
{{- end -}}
{{- end -}}
{{- range .Values.config.listeners -}}
{{- if and (eq $.Values.mode "gateway") .upstreams -}}
{{- fail "config.listeners: upstreams is a sidecar's; set mode: sidecar" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Sluice's container, the same in a gateway's pod and beside a broker. */}}
{{- define "sluice.container" -}}
name: sluice
image: {{ include "sluice.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- if eq .Values.mode "sidecar" }}
# A sidecar: it starts before the broker and stops after it.
restartPolicy: Always
{{- end }}
args: [serve, --config, /etc/sluice/sluice.toml]
env:
  - name: POD_NAME
    valueFrom: { fieldRef: { fieldPath: metadata.name } }
  {{- if eq .Values.mode "sidecar" }}
  - name: NODE_ID
    valueFrom: { fieldRef: { fieldPath: "metadata.labels['{{ .Values.sidecar.nodeIdLabel }}']" } }
  - { name: SLUICE_LISTENERS__0__UPSTREAMS, value: "$(NODE_ID)=127.0.0.1:{{ .Values.sidecar.upstreamPort }}" }
  - { name: SLUICE_LISTENERS__0__ADVERTISED_HOST, value: $(POD_NAME).{{ .Values.sidecar.domain }} }
  {{- end }}
  {{- if .Values.fleet.enabled }}
  - { name: SLUICE_FLEET__NAME, value: $(POD_NAME) }
  {{- if eq .Values.mode "sidecar" }}
  - { name: SLUICE_FLEET__ADVERTISED, value: "$(POD_NAME).{{ .Values.sidecar.domain }}:{{ .Values.fleet.port }}" }
  {{- else }}
  - { name: SLUICE_FLEET__ADVERTISED, value: "$(POD_NAME).{{ include "sluice.members" . }}.{{ .Release.Namespace }}.svc:{{ .Values.fleet.port }}" }
  {{- end }}
  {{- end }}
  {{- if and .Values.admin.tls.secretName .Values.admin.tls.ca }}
  # For commands in this container.
  - { name: SLUICE_ADMIN_CA_FILE, value: /etc/sluice-secrets/admin-tls/{{ .Values.admin.tls.ca }} }
  {{- end }}
  {{- if .Values.admin.token.secretName }}
  - { name: SLUICE_ADMIN_TOKEN_FILE, value: /etc/sluice-secrets/admin-token/{{ .Values.admin.token.key }} }
  {{- end }}
  {{- with .Values.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  - { name: bootstrap, containerPort: {{ (first .Values.config.listeners).bootstrap_port | default 19090 }} }
  {{- if .Values.fleet.enabled }}
  - { name: fleet, containerPort: {{ .Values.fleet.port }} }
  {{- end }}
  - { name: admin, containerPort: {{ .Values.admin.port }} }
{{- $scheme := ternary "HTTPS" "HTTP" (not (empty .Values.admin.tls.secretName)) }}
startupProbe:
  httpGet: { path: /healthz, port: admin, scheme: {{ $scheme }} }
  periodSeconds: 1
  timeoutSeconds: 5
  failureThreshold: 60
livenessProbe:
  httpGet: { path: /healthz, port: admin, scheme: {{ $scheme }} }
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
# Two failures in a row, so that one that is busy for a moment stays.
readinessProbe:
  httpGet: { path: /readyz, port: admin, scheme: {{ $scheme }} }
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
{{- if and (eq .Values.mode "gateway") .Values.preStopSeconds }}
# New connections arrive until all nodes know that this pod ends. No shell is needed for it.
lifecycle:
  preStop:
    sleep: { seconds: {{ .Values.preStopSeconds }} }
{{- end }}
securityContext:
  {{- include "sluice.securityContext" . | nindent 2 }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
volumeMounts:
  - { name: sluice, mountPath: /etc/sluice, readOnly: true }
  {{- range $name, $_ := include "sluice.secrets" . | fromYaml }}
  - { name: {{ $name }}, mountPath: /etc/sluice-secrets/{{ $name }}, readOnly: true }
  {{- end }}
  {{- if eq .Values.mode "gateway" }}
  - { name: data, mountPath: /var/lib/sluice }
  {{- end }}
{{- end -}}

{{/* With a pod's seccomp profile, this is Pod Security's "restricted". */}}
{{- define "sluice.securityContext" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end -}}

{{/* The volumes of Sluice's configuration and Secrets. */}}
{{- define "sluice.volumes" -}}
- name: sluice
  configMap: { name: {{ include "sluice.fullname" . }} }
{{- range $name, $secret := include "sluice.secrets" . | fromYaml }}
- name: {{ $name }}
  secret: { secretName: {{ $secret }}, defaultMode: 0440 }
{{- end }}
{{- end -}}

{{/* A value as a CEL literal of the type of a field of the object: (list value its-type). */}}
{{- define "sluice.cel" -}}
{{- $value := index . 0 -}}
{{- $type := index . 1 -}}
{{- if kindIs "map" $value -}}
{{- $amounts := or (hasSuffix ".requests" $type) (hasSuffix ".limits" $type) -}}
{{- $fields := list -}}
{{- range $key, $inner := $value -}}
{{- $fields = append $fields (printf "%s: %s" (ternary (quote $key) $key $amounts) (include "sluice.cel" (list $inner (printf "%s.%s" $type $key)))) -}}
{{- end -}}
{{- ternary "" $type $amounts }}{{ "{" }}{{ join ", " $fields }}{{ "}" -}}
{{- else if kindIs "slice" $value -}}
{{- $items := list -}}
{{- range $value -}}
{{- $items = append $items (include "sluice.cel" (list . $type)) -}}
{{- end -}}
[{{ join ", " $items }}]
{{- else -}}
{{- toRawJson $value -}}
{{- end -}}
{{- end -}}
