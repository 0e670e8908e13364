// SPDX-License-Identifier: Apache-2.0

package deviceconfig

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/deviceconfig/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/kit"
)

// TestDeletionWaitsForTheModule: a DeviceConfig goes when its Module is gone, and not when the
// Module's deletion has begun.
func TestDeletionWaitsForTheModule(t *testing.T) {
	s := newScene(t)
	s.start()
	d := s.create(s.deviceConfig("nic", "a"))
	s.load("nic", 1, 1)
	s.awaitReady("nic", kit.ReasonReconciled)
	m := s.module("nic")
	held := m.DeepCopy()
	held.Finalizers = append(held.Finalizers, "test.example.com/unload")
	s.must(s.admin.Patch(t.Context(), held, client.MergeFrom(m)))

	s.must(s.admin.Delete(t.Context(), d.DeepCopy()))
	s.await("the Module's deletion", "nic", func() bool { m := s.module("nic"); return m != nil && m.DeletionTimestamp != nil })
	s.awaitReady("nic", "!"+kit.ReasonDeleting)
	if got := s.get("nic").Finalizers; len(got) != 1 || got[0] != Finalizer {
		t.Errorf("finalizers %v", got)
	}
	if read(s, "nic"+serviceAccountSuffix, &corev1.ServiceAccount{}) == nil {
		t.Error("the ServiceAccount is gone while the Module needs it")
	}
	held = s.module("nic")
	released := held.DeepCopy()
	released.Finalizers = nil
	s.must(s.admin.Patch(t.Context(), released, client.MergeFrom(held)))
	s.await("the DeviceConfig to go", "nic", func() bool { return s.get("nic") == nil })
	if s.module("nic") != nil || read(s, "nic"+serviceAccountSuffix, &corev1.ServiceAccount{}) != nil {
		t.Error("something is left behind")
	}
}

var errBroken = errors.New("the cable is broken")

// passes reconciles until nothing more is asked for, without a manager: every step is seen.
func (s *scene) passes(c client.WithWatch, name string) error {
	s.Helper()
	r := kit.NewReconciler(c, c, nil, Operator(c))
	for range 8 {
		_, err := r.Reconcile(s.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: s.namespace, Name: name}})
		if err != nil {
			return err
		}
	}
	return nil
}

// TestFinalizerGoesWhenTheModuleIsGone: at once where there is none, and not as long as that is not
// known.
func TestFinalizerGoesWhenTheModuleIsGone(t *testing.T) {
	s := newScene(t)
	c := s.env.Client(t, s.config)
	d := s.create(s.deviceConfig("nic", "a"))
	s.must(s.passes(c, "nic"))
	s.must(s.admin.Delete(t.Context(), d.DeepCopy()))

	broken := interceptor.NewClient(c, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
		options ...client.ListOption) error {
		if _, ok := list.(*v1beta1.ModuleList); ok {
			return errBroken
		}
		return c.List(ctx, list, options...)
	}})
	if err := s.passes(broken, "nic"); !errors.Is(err, errBroken) {
		t.Errorf("error %v is not tried again", err)
	}
	if got := s.get("nic"); got == nil || len(got.Finalizers) != 1 || s.module("nic") == nil {
		t.Errorf("DeviceConfig %+v, Module %+v", got, s.module("nic"))
	}
	s.must(s.admin.Delete(t.Context(), s.module("nic")))
	s.must(s.passes(c, "nic"))
	if got := s.get("nic"); got != nil {
		t.Errorf("still there: %+v", got)
	}
}

// TestErrorsAreNoConflicts: what could not be read is tried again, is told as what it is, and keeps
// its cause.
func TestErrorsAreNoConflicts(t *testing.T) {
	s := newScene(t)
	c := s.env.Client(t, s.config)
	s.create(s.deviceConfig("nic", "a"))
	for what, kind := range map[string]string{"list objects of kind DeviceConfig": "DeviceConfigList", "list Modules": "ModuleList",
		"list Nodes": "NodeList"} {
		broken := interceptor.NewClient(c, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
			options ...client.ListOption) error {
			if of, err := apiutil.GVKForObject(list, c.Scheme()); err != nil || of.Kind == kind {
				return errors.Join(err, errBroken)
			}
			return c.List(ctx, list, options...)
		}})
		err := s.passes(broken, "nic")
		if !errors.Is(err, errBroken) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: error %v", what, err)
		}
		if got := s.ready("nic"); got != "!"+kit.ReasonReconcileFailed || !strings.Contains(s.message("nic"), what+": "+errBroken.Error()) {
			t.Errorf("%s: Ready is %s: %s", what, got, s.message("nic"))
		}
	}
}

// TestKindsAreRegistered: the program's own scheme knows all that is read, written and watched.
func TestKindsAreRegistered(t *testing.T) {
	s := newScene(t)
	mgr, err := Program().NewManager(s.config, &kit.Options{MetricsAddress: "0", ProbeAddress: "0"})
	s.must(err)
	op := Operator(mgr.GetClient())
	for _, object := range append([]client.Object{op.New(), &corev1.Node{}}, op.Children...) {
		if _, err := apiutil.GVKForObject(object, mgr.GetScheme()); err != nil {
			t.Error(err)
		}
	}
	s.must(kit.Add(mgr, op))
}

// TestMetricFollowsTheDeviceConfig: a series for each, gone with it, and for nobody who may not
// read it.
func TestMetricFollowsTheDeviceConfig(t *testing.T) {
	s := newScene(t)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	s.must(err)
	address := free.Addr().String()
	s.must(free.Close())
	s.start(func(o *kit.Options) { o.MetricsAddress, o.MetricsSecure = address, true })
	reader := s.reader()
	metric := func(name string) string {
		_, text := s.scrape(address, reader)
		for line := range strings.Lines(text) {
			prefix := `he_sample_operator_reconciliation_failed{device_config="` + name + `",namespace="` + s.namespace + `"} `
			if value, found := strings.CutPrefix(line, prefix); found {
				return strings.TrimSpace(value)
			}
		}
		return ""
	}
	d := s.deviceConfig("nic", "a")
	d.Spec.ServiceAccountName = "missing"
	s.create(d)
	s.await("a failure", "nic", func() bool { return metric("nic") == "1" })
	s.change("nic", func(spec *v1alpha1.DeviceConfigSpec) { spec.ServiceAccountName = "" })
	s.load("nic", 1, 1)
	s.await("no failure", "nic", func() bool { return metric("nic") == "0" })
	if code, text := s.scrape(address, ""); code == http.StatusOK {
		t.Errorf("anybody reads the metrics: %s", text)
	}
	s.must(s.admin.Delete(t.Context(), d.DeepCopy()))
	s.await("the series to go", "nic", func() bool { return s.get("nic") == nil && metric("nic") == "" })
}

// reader is a token of a ServiceAccount that may read the metrics.
func (s *scene) reader() string {
	s.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "prometheus"}}
	s.must(s.admin.Create(s.Context(), account))
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "deviceconfig-operator-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: s.namespace, Name: account.Name}},
	}
	s.must(s.admin.Create(s.Context(), binding))
	return s.env.Token(s.T, s.namespace, account.Name)
}

func (s *scene) scrape(address, token string) (code int, text string) {
	s.Helper()
	request, err := http.NewRequestWithContext(s.Context(), http.MethodGet, "https://"+address+"/metrics", nil)
	s.must(err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // the operator's certificate is its own
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, ""
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	s.must(err)
	return response.StatusCode, string(content)
}

// TestStatusIsASubresource: conditions are stored, and whoever writes the spec cannot write them.
func TestStatusIsASubresource(t *testing.T) {
	s := newScene(t)
	c := s.env.Client(t, s.config)
	s.create(s.deviceConfig("nic", "a"))
	s.must(s.passes(c, "nic"))
	stored := s.get("nic")
	if len(stored.Status.Conditions) != 2 || stored.Status.Conditions[0].ObservedGeneration != stored.Generation {
		t.Fatalf("conditions %+v", stored.Status.Conditions)
	}
	forged := stored.DeepCopy()
	meta.SetStatusCondition(&forged.Status.Conditions,
		metav1.Condition{Type: kit.ConditionReady, Status: metav1.ConditionTrue, Reason: "Forged"})
	forged.Spec.DriverVersion = "2.0"
	s.must(s.admin.Update(t.Context(), forged))
	if got := s.get("nic"); got.Spec.DriverVersion != "2.0" || meta.IsStatusConditionTrue(got.Status.Conditions, kit.ConditionReady) {
		t.Errorf("%+v", got)
	}
}
