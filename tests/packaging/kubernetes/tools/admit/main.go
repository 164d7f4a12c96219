// Admits a pod as the API server does under a MutatingAdmissionPolicy: reads {"policy": …, "pod": …} from standard input,
// and prints the pod as its JSON patches make it. Selectors and match conditions are not evaluated.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"

	admission1 "k8s.io/api/admissionregistration/v1"
	core1 "k8s.io/api/core/v1"
	meta1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	limits "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

func main() {
	log.SetFlags(0)
	var given struct {
		Policy admission1.MutatingAdmissionPolicy
		Pod    core1.Pod
	}
	decoder := json.NewDecoder(os.Stdin)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&given); err != nil {
		log.Fatal(err)
	}
	pod, err := admit(&given.Policy, &given.Pod)
	if err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(pod); err != nil {
		log.Fatal(err)
	}
}

func admit(policy *admission1.MutatingAdmissionPolicy, pod runtime.Object) (runtime.Object, error) {
	scheme := runtime.NewScheme()
	if err := core1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		return nil, err
	}
	kind, resource := core1.SchemeGroupVersion.WithKind("Pod"), core1.SchemeGroupVersion.WithResource("pods")
	for _, mutation := range policy.Spec.Mutations {
		condition := &patch.JSONPatchCondition{Expression: mutation.JSONPatch.Expression}
		declared := cel.OptionalVariableDeclarations{HasPatchTypes: true, HasAuthorizer: true}
		patcher := patch.NewJSONPatcher(compiler.CompileMutatingEvaluator(condition, declared, environment.StoredExpressions))
		attributes := admission.NewAttributesRecord(
			pod, nil, kind, "", "", resource, "", admission.Create, &meta1.CreateOptions{}, false, nil)
		request := patch.Request{
			MatchedResource: resource,
			VersionedAttributes: &admission.VersionedAttributes{
				Attributes:         attributes,
				VersionedKind:      kind,
				VersionedObject:    admission.NewLazyObject(pod),
				VersionedOldObject: admission.NewLazyObject(nil),
			},
			ObjectInterfaces: admission.NewObjectInterfacesFromScheme(scheme),
		}
		if pod, err = patcher.Patch(context.Background(), request, limits.RuntimeCELCostBudget); err != nil {
			return nil, err
		}
	}
	return pod, nil
}
