// SPDX-License-Identifier: Apache-2.0

package reported_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/reported"
	"github.com/drover-project/drover/internal/shared/words"
)

// many entries are more than any list may have.
const many = 3000

// poison steers a terminal, is no UTF-8, and longer than any text may be.
var poison = "\x1b[2J\u202e\xff" + strings.Repeat("x", 1<<13)

// fill makes the worst of every field that an agent can write, by reflection: a field that is added
// to the status is in it without anybody's doing. Entries keep the names without which they would
// be dropped whole.
func fill(v reflect.Value, path string) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), path)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[metav1.Time]() {
			v.Set(reflect.ValueOf(metav1.NewTime(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), path+"."+v.Type().Field(i).Name)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), many, many))
		for i := range 2 { // the others are empty: the list is too long
			fill(v.Index(i), path+"[]")
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for i := range 300 {
			v.SetMapIndex(reflect.ValueOf(fmt.Sprint("p", i)), reflect.ValueOf(poison))
		}
		v.SetMapIndex(reflect.ValueOf("\x1b[2J"), reflect.ValueOf("x"))
	case reflect.String:
		v.SetString(poison)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(-1 << 31)
	case reflect.Bool:
		v.SetBool(true)
	default:
		panic(path + ": " + v.Kind().String())
	}
}

// bounded reports what of a value steers a terminal, is no name, or has no bound.
func bounded(v reflect.Value, path string, tell func(path, what string)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			bounded(v.Elem(), path, tell)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type() != reflect.TypeFor[metav1.Time]() {
				bounded(v.Field(i), path+"."+v.Type().Field(i).Name, tell)
			}
		}
	case reflect.Slice:
		if v.Len() > 2048 || strings.Count(path, "[]") > 0 && v.Len() > 256 {
			tell(path, fmt.Sprint(v.Len(), " entries"))
		}
		for i := range v.Len() {
			bounded(v.Index(i), path+"[]", tell)
		}
	case reflect.Map:
		if v.Len() > 256 {
			tell(path, fmt.Sprint(v.Len(), " entries"))
		}
		for _, key := range v.MapKeys() {
			bounded(key, path+"{key}", tell)
			bounded(v.MapIndex(key), path+"{}", tell)
		}
	case reflect.String:
		if text := v.String(); words.Clean(text) != text || len(text) > 4096 {
			tell(path, fmt.Sprintf("%d bytes, %.20q", len(text), text))
		}
	case reflect.Int, reflect.Int32, reflect.Int64:
		if n := v.Int(); n < -1 || n > 1<<30 {
			tell(path, fmt.Sprint(n))
		}
	case reflect.Bool:
	default:
		tell(path, v.Kind().String())
	}
}

// TestEveryFieldIsBounded goes through the type, so that no field can be forgotten.
func TestEveryFieldIsBounded(t *testing.T) {
	config := &v1beta1.NodeModulesConfig{}
	s := &config.Status
	fill(reflect.ValueOf(s).Elem(), "status")
	for i := range s.Modules {
		s.Modules[i].Namespace, s.Modules[i].Name = "ns", fmt.Sprint("m", i)
	}
	for i := range s.Attempts {
		s.Attempts[i].Namespace, s.Attempts[i].Name, s.Attempts[i].State = "ns", fmt.Sprint("m", i), v1beta1.AttemptFailed
	}
	for i := range 2 {
		s.Attempts[i].Holders[0], s.Attempts[i].HolderUIDs[0] = "ns/pod", "u1"
	}
	for i := range s.Artifacts[:2] {
		s.Artifacts[i] = v1beta1.NodeArtifact{ID: fmt.Sprint("d", i), Digest: "sha256:00"}
	}
	seen := map[string]bool{}
	bounded(reflect.ValueOf(s).Elem(), "status", func(path, _ string) { seen[path] = true })
	if len(seen) < 40 {
		t.Errorf("only %d fields were bad to begin with: %v", len(seen), seen)
	}
	if dropped := reported.Clean(config); dropped < 5000 {
		t.Errorf("%d dropped", dropped)
	}
	bounded(reflect.ValueOf(s).Elem(), "status", func(path, what string) {
		if seen[path] {
			seen[path] = false
			t.Errorf("%s has %s", path, what)
		}
	})
	if len(s.Modules) != 512 || len(s.Attempts) != 1024 || len(s.Artifacts) != 2 {
		t.Errorf("%d modules, %d attempts, %d artifacts are left", len(s.Modules), len(s.Attempts), len(s.Artifacts))
	}
	for i := range 2 {
		if a := &s.Attempts[i]; !reasons.Known(a.Reason) || len(a.Holders) != 1 || len(a.HolderUIDs) != 1 {
			t.Fatalf("attempt %d: reason %q, holders %q %q", i, a.Reason, a.Holders, a.HolderUIDs)
		}
	}
	if dropped := reported.Clean(config); dropped != 0 {
		t.Errorf("cleaned again, it drops %d", dropped)
	}
}

// TestWhatIsWellStays: an agent of this version says nothing that is changed, and parameters are
// those of the order, whatever they are: they are compared with it.
func TestWhatIsWellStays(t *testing.T) {
	item := v1beta1.ModuleItem{Namespace: "team-a", Name: "nic.x", ServiceAccountName: "default", Version: "1.0"}
	ordered := v1beta1.ModuleConfig{KernelVersion: "6.1.0-44-amd64", ContainerImage: "r.example/nic@sha256:00",
		ImagePullPolicy: "IfNotPresent", InTreeModulesToRemove: []string{"nic_stock"}, Modprobe: v1beta1.ModprobeSpec{ModuleName: "nic",
			DirName: "/opt", Parameters: []string{"label=a\tb", "n=1"}, Args: &v1beta1.ModprobeArgs{Load: []string{"-v"}}}}
	config := &v1beta1.NodeModulesConfig{
		Spec: v1beta1.NodeModulesConfigSpec{Modules: []v1beta1.NodeModuleSpec{{ModuleItem: item, Config: ordered}}},
		Status: v1beta1.NodeModulesConfigStatus{
			Modules: []v1beta1.NodeModuleStatus{{ModuleItem: item, Config: ordered.DeepCopy(), BootID: "b0071d00-0000-4000-8000-000000000001",
				Observed: &v1beta1.ObservedModule{Delivery: "sha256-00ff", BuildID: "00ff", SrcVersion: "533BB7E5866E52F63B9ACCB", Taint: "OE",
					Repairs: 3, Parameters: map[string]string{"debug": "Y", "label": "é", "empty": ""}}}},
			Attempts: []v1beta1.NodeModuleAttempt{
				{Namespace: "team-a", Name: "gpu", State: v1beta1.AttemptInUse, Reason: v1beta1.ReasonInUse, Message: "two\nlines",
					Holders: []string{"ns/pod-0"}, HolderUIDs: []string{"0aaa1111-2222-4333-8444-555566667777"}, Attempt: 2},
				{Namespace: "team-a", Name: "of-an-older-agent", State: v1beta1.AttemptInUse, Holders: []string{"ns/pod-0"}},
				{Namespace: "team-a", Name: "old", State: v1beta1.AttemptAbsent,
					Strike: &v1beta1.Strike{Delivery: "sha256-00", Build: "nic (build 00ff)"}},
			},
			Artifacts: []v1beta1.NodeArtifact{{ID: "sha256-00ff", Digest: "00ff"}},
		},
	}
	want := config.DeepCopy()
	dropped := reported.Clean(config)
	if diff := cmp.Diff(want, config); diff != "" || dropped != 0 {
		t.Errorf("%d dropped (-want +got):\n%s", dropped, diff)
	}
}

// TestAUIDIsOfThePodInItsPlace: what is dropped takes its UID along, and lists that do not match
// have none.
func TestAUIDIsOfThePodInItsPlace(t *testing.T) {
	long, many := strings.Repeat("x", 300), func(text string, n int) []string { return slices.Repeat([]string{text}, n) }
	for name, tc := range map[string]struct {
		pods, uids         []string
		thenPods, thenUIDs []string
	}{
		"both are well":         {[]string{"a/1", "a/2"}, []string{"u1", "u2"}, []string{"a/1", "a/2"}, []string{"u1", "u2"}},
		"no pod":                {[]string{"..", "a/2"}, []string{"u1", "u2"}, []string{"a/2"}, []string{"u2"}},
		"no UID":                {[]string{"a/1", "a/2", "a/3"}, []string{long, "", "u3"}, []string{"a/3"}, []string{"u3"}},
		"too few UIDs":          {[]string{"a/1", "a/2"}, []string{"u1"}, []string{"a/1", "a/2"}, nil},
		"too many UIDs":         {[]string{"a/1"}, []string{"u1", "u2"}, []string{"a/1"}, nil},
		"UIDs of nobody":        {nil, []string{"u1"}, nil, nil},
		"of an older agent":     {[]string{"a/1"}, nil, []string{"a/1"}, nil},
		"more than are counted": {many("a/1", 20), many("u", 20), many("a/1", 16), many("u", 16)},
	} {
		config := &v1beta1.NodeModulesConfig{Status: v1beta1.NodeModulesConfigStatus{Attempts: []v1beta1.NodeModuleAttempt{{
			Namespace: "ns", Name: "m", State: v1beta1.AttemptInUse, Holders: tc.pods, HolderUIDs: tc.uids,
		}}}}
		dropped, changes := reported.Clean(config), !slices.Equal(tc.pods, tc.thenPods) || !slices.Equal(tc.uids, tc.thenUIDs)
		if a := config.Status.Attempts[0]; !slices.Equal(a.Holders, tc.thenPods) || !slices.Equal(a.HolderUIDs, tc.thenUIDs) ||
			(dropped > 0) != changes {
			t.Errorf("%s: %q %q, %d dropped", name, a.Holders, a.HolderUIDs, dropped)
		}
	}
}

// TestReasonsOfOtherVersions stay readable.
func TestReasonsOfOtherVersions(t *testing.T) {
	for given, then := range map[[2]string]string{
		{"ReasonOfTomorrow", "why"}: "AgentFailed ReasonOfTomorrow: why",
		{"ReasonOfTomorrow", ""}:    "AgentFailed ReasonOfTomorrow",
		{"-", "why"}:                "AgentFailed -: why",
		{"a b\x1b", ""}:             "AgentFailed a b?",
		{"LoadFailed", "why"}:       "LoadFailed why",
		{"", "why"}:                 " why",
	} {
		config := &v1beta1.NodeModulesConfig{Status: v1beta1.NodeModulesConfigStatus{Attempts: []v1beta1.NodeModuleAttempt{{
			Namespace: "ns", Name: "m", State: v1beta1.AttemptFailed, Reason: given[0], Message: given[1],
		}}}}
		reported.Clean(config)
		if a := config.Status.Attempts[0]; a.Reason+" "+a.Message != then {
			t.Errorf("%q: %q %q, want %q", given, a.Reason, a.Message, then)
		}
	}
}
