// Distils what the API server knows about its own types into one small file: which fields there are,
// what Go does with empty ones, how lists merge. Facts only; see README.md for how to run it.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strings"

	apps "k8s.io/api/apps/v1"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	certificates "k8s.io/api/certificates/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	scheduling "k8s.io/api/scheduling/v1"
	storage "k8s.io/api/storage/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var roots = []any{
	core.Pod{}, core.Node{}, core.Namespace{}, core.ConfigMap{}, core.Secret{}, core.Service{}, core.ServiceAccount{},
	core.Event{}, core.PersistentVolumeClaim{}, core.PersistentVolume{}, core.Endpoints{}, core.ResourceQuota{},
	core.Binding{}, core.LimitRange{}, core.PodTemplate{}, core.ReplicationController{},
	discovery.EndpointSlice{}, coordination.Lease{}, storage.CSINode{}, storage.CSIDriver{}, storage.StorageClass{},
	storage.VolumeAttachment{}, scheduling.PriorityClass{},
	policy.PodDisruptionBudget{}, policy.Eviction{}, apps.Deployment{}, apps.ReplicaSet{}, apps.DaemonSet{},
	apps.StatefulSet{}, batch.Job{}, batch.CronJob{},
	rbac.Role{}, rbac.RoleBinding{}, rbac.ClusterRole{}, rbac.ClusterRoleBinding{},
	apiextensions.CustomResourceDefinition{}, certificates.CertificateSigningRequest{},
	autoscaling.HorizontalPodAutoscaler{}, autoscalingv1.Scale{}, networking.NetworkPolicy{}, networking.Ingress{},
	authentication.TokenRequest{}, authentication.TokenReview{}, authentication.SelfSubjectReview{},
	authorization.SelfSubjectAccessReview{}, authorization.SubjectAccessReview{}, authorization.LocalSubjectAccessReview{},
	authorization.SelfSubjectRulesReview{},
	meta.DeleteOptions{},
}

type field struct {
	Type     string   `json:"t"`
	Ref      string   `json:"ref,omitempty"`
	Of       *field   `json:"of,omitempty"`
	Keep     bool     `json:"keep,omitempty"` // written even when empty
	Pointer  bool     `json:"ptr,omitempty"`  // null is not zero
	List     string   `json:"list,omitempty"`
	Keys     []string `json:"keys,omitempty"`
	Atomic   bool     `json:"atomic,omitempty"`
	Granular bool     `json:"granular,omitempty"` // though its type is atomic
	Patch    string   `json:"patch,omitempty"`
	Key      string   `json:"key,omitempty"`
	Default  any      `json:"default,omitempty"`
}

type typ struct {
	Fields map[string]*field `json:"fields"`
	Atomic bool              `json:"atomic,omitempty"`
}

var (
	types   = map[string]*typ{}
	openapi = map[string]map[string]any{}
)

func name(t reflect.Type) string {
	p := strings.TrimPrefix(t.PkgPath(), "k8s.io/")
	p = strings.NewReplacer("apimachinery/pkg/apis/", "", "apiextensions-apiserver/pkg/apis/", "", "api/", "").Replace(p)
	return strings.ReplaceAll(p, "/", ".") + "." + t.Name()
}

func model(t reflect.Type) string {
	return "io." + strings.ReplaceAll(strings.Replace(t.PkgPath(), "k8s.io/", "k8s.", 1), "/", ".") + "." + t.Name()
}

func describe(t reflect.Type) *field {
	if t.Kind() == reflect.Pointer {
		f := describe(t.Elem())
		f.Pointer = true
		return f
	}
	switch t.PkgPath() + "." + t.Name() {
	case "k8s.io/apimachinery/pkg/apis/meta/v1.Time":
		return &field{Type: "time"}
	case "k8s.io/apimachinery/pkg/apis/meta/v1.MicroTime":
		return &field{Type: "microtime"}
	case "k8s.io/apimachinery/pkg/api/resource.Quantity":
		return &field{Type: "quantity"}
	case "k8s.io/apimachinery/pkg/util/intstr.IntOrString":
		return &field{Type: "intorstring"}
	case "k8s.io/apimachinery/pkg/apis/meta/v1.FieldsV1", "k8s.io/apimachinery/pkg/runtime.RawExtension":
		return &field{Type: "any"}
	}
	if strings.HasPrefix(t.Name(), "JSON") && t.PkgPath() == "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1" {
		return &field{Type: "any"}
	}
	switch t.Kind() {
	case reflect.String:
		return &field{Type: "string"}
	case reflect.Bool:
		return &field{Type: "bool"}
	case reflect.Int, reflect.Int32:
		return &field{Type: "int32"}
	case reflect.Int64:
		return &field{Type: "int64"}
	case reflect.Float32, reflect.Float64:
		return &field{Type: "float"}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return &field{Type: "bytes"}
		}
		return &field{Type: "list", Of: describe(t.Elem())}
	case reflect.Map:
		return &field{Type: "map", Of: describe(t.Elem())}
	case reflect.Struct:
		add(t)
		return &field{Type: "ref", Ref: name(t)}
	}
	panic(fmt.Sprint("what is ", t))
}

func add(t reflect.Type) {
	if _, done := types[name(t)]; done {
		return
	}
	out := &typ{Fields: map[string]*field{}}
	types[name(t)] = out
	model := openapi[model(t)]
	if model["x-kubernetes-map-type"] == "atomic" {
		out.Atomic = true
	}
	properties, _ := model["properties"].(map[string]any)
	var walk func(reflect.Type)
	walk = func(t reflect.Type) {
		for i := range t.NumField() {
			f := t.Field(i)
			parts := strings.Split(f.Tag.Get("json"), ",")
			if f.Anonymous && parts[0] == "" {
				walk(f.Type)
				continue
			}
			if parts[0] == "-" || parts[0] == "" {
				continue
			}
			d := describe(f.Type)
			d.Keep = true
			for _, option := range parts[1:] {
				// omitempty does nothing for a struct that is a value
				if option == "omitzero" || option == "omitempty" && f.Type.Kind() != reflect.Struct {
					d.Keep = false
				}
			}
			d.Patch, d.Key = f.Tag.Get("patchStrategy"), f.Tag.Get("patchMergeKey")
			if p, ok := properties[parts[0]].(map[string]any); ok {
				if l, ok := p["x-kubernetes-list-type"].(string); ok {
					d.List = l
				}
				if keys, ok := p["x-kubernetes-list-map-keys"].([]any); ok {
					for _, key := range keys {
						d.Keys = append(d.Keys, key.(string))
					}
				}
				d.Atomic = p["x-kubernetes-map-type"] == "atomic"
				d.Granular = p["x-kubernetes-map-type"] == "granular"
				switch def := p["default"].(type) {
				case string, bool, float64:
					if !reflect.ValueOf(def).IsZero() || d.Pointer {
						d.Default = def
					}
				}
			}
			out.Fields[parts[0]] = d
		}
	}
	walk(t)
}

func main() {
	files, err := filepath.Glob(filepath.Join(os.Args[1], "*.json"))
	if err != nil || len(files) == 0 {
		panic("usage: distil <directory with the documents of /openapi/v3>")
	}
	for _, file := range files {
		bytes, err := os.ReadFile(file)
		if err != nil {
			panic(err)
		}
		var document struct {
			Components struct {
				Schemas map[string]map[string]any `json:"schemas"`
			} `json:"components"`
		}
		if err := json.Unmarshal(bytes, &document); err != nil {
			panic(err)
		}
		for name, schema := range document.Components.Schemas {
			openapi[name] = schema
		}
	}
	kinds := map[string]string{}
	for _, root := range roots {
		t := reflect.TypeOf(root)
		add(t)
		kinds[t.Name()] = name(t)
	}
	names := make([]string, 0, len(types))
	for name := range types {
		names = append(names, name)
	}
	sort.Strings(names)
	// One line per type: a diff tells which type changed.
	fmt.Println("{\"types\": {")
	for i, name := range names {
		line, err := json.Marshal(types[name])
		if err != nil {
			panic(err)
		}
		comma := ","
		if i == len(names)-1 {
			comma = ""
		}
		fmt.Printf("%q: %s%s\n", name, line, comma)
	}
	line, err := json.Marshal(kinds)
	if err != nil {
		panic(err)
	}
	fmt.Printf("}, \"kinds\": %s}\n", line)
}
