{{/* The Secrets that are mounted, each at /etc/sluice-secrets/<name>: its name in Kubernetes by that name. */}}
{{- define "sluice.secrets" -}}
{{- with .Values.cluster.password.secretName }}
cluster-password: {{ . }}
{{- end }}
{{- with .Values.cluster.tls.secretName }}
cluster-tls: {{ . }}
{{- end }}
{{- range $index, $listener := .Values.config.listeners }}
{{- $name := $listener.name | default "clients" }}
{{- with (include "sluice.ofListener" (list $ $name) | fromYaml).tls.secretName }}
listener-{{ $index }}-tls: {{ . }}
{{- end }}
{{- end }}
{{- if include "sluice.signed" . }}
fleet: {{ .Values.fleet.secret.secretName }}
{{- end }}
{{- if .Values.fleet.enabled }}
{{- with .Values.fleet.tls.secretName }}
fleet-tls: {{ . }}
{{- end }}
{{- end }}
{{- with .Values.admin.tls.secretName }}
admin-tls: {{ . }}
{{- end }}
{{- with .Values.admin.token.secretName }}
admin-token: {{ . }}
{{- end }}
{{- end -}}

{{/* Whether there is something to sign: a fleet's messages, or quotas in a topic. */}}
{{- define "sluice.signed" -}}
{{- if and .Values.fleet.secret.secretName (or .Values.fleet.enabled (eq (.Values.config.quotas | default dict).store "topic")) -}}
yes
{{- end -}}
{{- end -}}

{{/* The values of a listener, with the defaults of those that it leaves out: (list $ its-name). */}}
{{- define "sluice.ofListener" -}}
{{- $given := index ((index . 0).Values.listeners | default dict) (index . 1) | default dict -}}
tls: {{ mergeOverwrite (dict "secretName" "" "cert" "tls.crt" "key" "tls.key" "ca" "") ($given.tls | default dict) | toJson }}
service: {{ mergeOverwrite (dict "type" "ClusterIP" "annotations" dict "nodePorts" dict "spec" dict) ($given.service | default dict) | toJson }}
{{- end -}}

{{/* What the chart adds to `config`, but for listeners. */}}
{{- define "sluice.made" -}}
{{- $secrets := "/etc/sluice-secrets" -}}
admin:
  bind: "0.0.0.0:{{ .Values.admin.port }}"
  hosts:
    {{- include "sluice.memberHosts" . | nindent 4 }}
  {{- with .Values.admin.tls }}
  {{- if .secretName }}
  tls:
    cert_file: {{ $secrets }}/admin-tls/{{ .cert }}
    key_file: {{ $secrets }}/admin-tls/{{ .key }}
    {{- with .clientCa }}
    client_ca_file: {{ $secrets }}/admin-tls/{{ . }}
    {{- if $.Values.admin.token.secretName }}
    client_auth: requested
    {{- end }}
    {{- end }}
  {{- end }}
  {{- end }}
  {{- with .Values.admin.token }}
  {{- if .secretName }}
  token_file: {{ $secrets }}/admin-token/{{ .key }}
  {{- end }}
  {{- end }}
{{- if or .Values.cluster.password.secretName .Values.cluster.tls.secretName }}
cluster:
  {{- with .Values.cluster.password }}
  {{- if .secretName }}
  password_file: {{ $secrets }}/cluster-password/{{ .key }}
  {{- end }}
  {{- end }}
  {{- with .Values.cluster.tls }}
  {{- if .secretName }}
  tls:
    {{- with .ca }}
    ca_file: {{ $secrets }}/cluster-tls/{{ . }}
    {{- end }}
    {{- if .cert }}
    cert_file: {{ $secrets }}/cluster-tls/{{ .cert }}
    key_file: {{ $secrets }}/cluster-tls/{{ .key | default .cert }}
    {{- end }}
  {{- end }}
  {{- end }}
{{- end }}
{{- if or .Values.fleet.enabled (include "sluice.signed" .) }}
fleet:
  {{- if include "sluice.signed" . }}
  secret_file: {{ $secrets }}/fleet/{{ .Values.fleet.secret.key }}
  {{- end }}
  {{- if .Values.fleet.enabled }}
  members_max: {{ include "sluice.membersMax" . }}
  bind: "0.0.0.0:{{ .Values.fleet.port }}"
  {{- if eq .Values.mode "sidecar" }}
  holder: {{ .Values.sidecar.podPrefix }}-{{ first .Values.sidecar.nodeIds }}.{{ .Values.sidecar.domain }}:{{ .Values.fleet.port }}
  {{- end }}
  {{- with .Values.fleet.tls }}
  {{- if .secretName }}
  tls:
    cert_file: {{ $secrets }}/fleet-tls/{{ .cert }}
    key_file: {{ $secrets }}/fleet-tls/{{ .key }}
    client_ca_file: {{ $secrets }}/fleet-tls/{{ .ca }}
  {{- end }}
  {{- end }}
  {{- end }}
{{- end }}
{{- if .Values.quotasFile }}
quotas:
  file: quotas.toml
{{- end }}
{{- if eq .Values.mode "gateway" }}
state:
  directory: /var/lib/sluice
{{- end }}
{{- end -}}

{{/* What the chart adds to a listener: (list $ its-index its-table). */}}
{{- define "sluice.madeListener" -}}
{{- $root := index . 0 -}}
{{- $name := (index . 2).name | default "clients" -}}
{{- $values := include "sluice.ofListener" (list $root $name) | fromYaml -}}
{{- $place := printf "/etc/sluice-secrets/listener-%d-tls" (int (index . 1)) -}}
bind: 0.0.0.0
{{- if eq $root.Values.mode "gateway" }}
advertised_host: {{ include "sluice.service" (list $root (index . 1) $name) }}.{{ $root.Release.Namespace }}.svc
{{- end }}
{{- with $values.service.nodePorts.bootstrap }}
advertised_bootstrap_port: {{ . }}
{{- end }}
{{- with $values.service.nodePorts.firstBroker }}
advertised_first_broker_port: {{ . }}
{{- end }}
{{- with $values.tls }}
{{- if .secretName }}
tls:
  cert_file: {{ $place }}/{{ .cert }}
  key_file: {{ $place }}/{{ .key }}
  {{- with .ca }}
  client_ca_file: {{ $place }}/{{ . }}
  {{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* All of sluice.toml as tables, in YAML: what the chart makes, and `config` over it. */}}
{{- define "sluice.config" -}}
{{- $made := include "sluice.made" . | fromYaml -}}
{{- $given := deepCopy .Values.config -}}
{{- $hosts := concat (($given.admin | default dict).hosts | default list) $made.admin.hosts -}}
{{- $listeners := list -}}
{{- range $index, $listener := $given.listeners -}}
{{- $listeners = append $listeners (mergeOverwrite (include "sluice.madeListener" (list $ $index $listener) | fromYaml) $listener) -}}
{{- end -}}
{{- $config := mergeOverwrite $made $given -}}
{{- $_ := set $config "listeners" $listeners -}}
{{- $_ := set $config.admin "hosts" $hosts -}}
{{- toYaml $config -}}
{{- end -}}

{{/* Whether each request to the admin port needs a client certificate. */}}
{{- define "sluice.asksForCertificate" -}}
{{- $tls := (include "sluice.config" . | fromYaml).admin.tls | default dict -}}
{{- if eq ($tls.client_auth | default (ternary "none" "required" (empty $tls.client_ca_file))) "required" -}}
yes
{{- end -}}
{{- end -}}

{{/* The keys of a table that hold a password itself, each with a blank behind it: (list table its-path). */}}
{{- define "sluice.passwords" -}}
{{- range $key, $value := index . 0 -}}
{{- $path := printf "%s.%s" (index $ 1) $key -}}
{{- if kindIs "map" $value -}}
{{- include "sluice.passwords" (list $value $path) -}}
{{- else if kindIs "slice" $value -}}
{{- range $index, $entry := $value -}}
{{- if kindIs "map" $entry -}}
{{- include "sluice.passwords" (list $entry (printf "%s.%d" $path $index)) -}}
{{- end -}}
{{- end -}}
{{- else if and (hasSuffix "password" $key) $value -}}
{{- $path }} {{ end -}}
{{- end -}}
{{- end -}}

{{/*
Tables as TOML, every key of them. Helm's own toToml writes whole numbers as floats. Texts, numbers and lists of them are
written alike in JSON and in TOML.
*/}}
{{- define "sluice.toml" -}}
{{- range $table := keys . | sortAlpha }}
{{- $value := index $ $table }}
{{- if kindIs "slice" $value }}
{{- range $value }}
[[{{ $table }}]]
{{ include "sluice.tomlKeys" . }}
{{ end }}
{{- else if $value }}
[{{ $table }}]
{{ include "sluice.tomlKeys" $value }}
{{ end }}
{{- end }}
{{- end -}}

{{- define "sluice.tomlKeys" -}}
{{- $lines := list -}}
{{- range $key, $value := . -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $lines = append $lines (printf "%s = %s" $key (include "sluice.tomlValue" $value)) -}}
{{- end -}}
{{- end -}}
{{- join "\n" $lines -}}
{{- end -}}

{{- define "sluice.tomlValue" -}}
{{- if kindIs "map" . -}}
{{- $entries := list -}}
{{- range $key, $value := . -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $entries = append $entries (printf "%s = %s" (toRawJson $key) (include "sluice.tomlValue" $value)) -}}
{{- end -}}
{{- end -}}
{{ "{" }} {{ join ", " $entries }} {{ "}" }}
{{- else -}}
{{- toRawJson . -}}
{{- end -}}
{{- end -}}
