// SPDX-License-Identifier: Apache-2.0

package direct_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/hub/direct"
)

// TestAModuleStaysWhereItIsIfItCannotMove: what is unloaded first and then not taken serves
// nowhere.
func TestAModuleStaysWhereItIsIfItCannotMove(t *testing.T) {
	w := newWorld(t)
	w.cluster("staying", w.kubeconfig(w.env.Config(t, "drover-hub-access")))
	w.reached("staying")
	before, after := sent(w.env.Namespace(t), "raid"), sent("is-not-there", "raid")
	w.must(w.transport.Send(t.Context(), "staying", before))
	w.eventually("the hub sees what it sent", func(ctx context.Context) error {
		parcels, err := w.transport.Parcels(ctx, "raid")
		if err == nil && !parcels["staying"].Report.Applied {
			err = errors.New("it does not")
		}
		return err
	})
	if err := w.transport.Send(t.Context(), "staying", after); err == nil ||
		!strings.Contains(err.Error(), `namespaces "is-not-there" not found`) {
		t.Errorf("the answer is %v", err)
	}
	have := &v1beta1.Module{}
	w.must(w.admin.Get(t.Context(), client.ObjectKeyFromObject(before), have))
	if have.DeletionTimestamp != nil {
		t.Error("it is deleted where it was")
	}
}

// TestALabelMakesNothingTheHubs: a tenant of the cluster may write one.
func TestALabelMakesNothingTheHubs(t *testing.T) {
	w := newWorld(t)
	w.cluster("busy", w.kubeconfig(w.env.Config(t, "drover-hub-access")))
	w.reached("busy")
	theirs, ours := sent(w.env.Namespace(t), "tpm"), sent(w.env.Namespace(t), "tpm")
	w.must(w.admin.Create(t.Context(), theirs))
	w.must(w.transport.Send(t.Context(), "busy", ours))
	w.eventually("the report is of the hub's own", func(ctx context.Context) error {
		parcels, err := w.transport.Parcels(ctx, "tpm")
		if m := parcels["busy"].Module; err == nil && (m == nil || m.Namespace != ours.Namespace) {
			err = fmt.Errorf("it is of %+v", m)
		}
		return err
	})
	w.eventually("what is recalled is gone", func(ctx context.Context) error {
		gone, err := w.transport.Recall(ctx, "busy", client.ObjectKeyFromObject(ours))
		if err == nil && !gone {
			err = errors.New("it is there")
		}
		return err
	})
	have := &v1beta1.Module{}
	w.must(w.admin.Get(t.Context(), client.ObjectKeyFromObject(theirs), have))
	if have.DeletionTimestamp != nil {
		t.Error("a Module of somebody else's was recalled")
	}
}

// TestALabelDropsNoConnection: with another label, a cluster is what it was, and what it has is
// known.
func TestALabelDropsNoConnection(t *testing.T) {
	w := newWorld(t)
	secret := w.cluster("labelled", w.kubeconfig(w.env.Config(t, "drover-hub-access")))
	w.reached("labelled")
	w.must(w.admin.Patch(t.Context(), secret, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"region":"south"}}}`))))
	w.eventually("the hub sees the label", func(ctx context.Context) error {
		target, err := w.target(ctx, "labelled")
		if err != nil || target == nil || target.Labels["region"] != "south" {
			return fmt.Errorf("%+v: %w", target, err)
		}
		if target.Unknown || target.Unreachable != "" {
			t.Errorf("with its new label, it is %+v", target)
		}
		return nil
	})
}

// TestARenewedTokenDropsNoConnection: until the new connection stands, the old one says what the
// cluster has. One that does not come to stand takes over as well, and says why.
func TestARenewedTokenDropsNoConnection(t *testing.T) {
	w := newWorld(t)
	config := w.env.Config(t, "drover-hub-access")
	secret := w.cluster("renewed", w.kubeconfig(config))
	w.reached("renewed")
	m := sent(w.env.Namespace(t), "kept")
	w.must(w.transport.Send(t.Context(), "renewed", m))
	has := func(ctx context.Context) error {
		parcels, err := w.transport.Parcels(ctx, "kept")
		if err == nil && parcels["renewed"].Module == nil {
			err = errors.New("the Module is not known")
		}
		return err
	}
	w.eventually("the Module is there", has)
	put := func(token, region string) {
		config.BearerToken = token
		secret.Labels["region"], secret.Data[direct.KubeconfigKey] = region, w.kubeconfig(config)
		w.must(w.admin.Update(t.Context(), secret))
	}

	put(w.env.Config(t, "drover-hub-access").BearerToken, "south")

	w.eventually("the hub sees the Secret", func(ctx context.Context) error {
		target, err := w.target(ctx, "renewed")
		if err != nil || target == nil || target.Labels["region"] != "south" {
			return fmt.Errorf("%+v: %w", target, err)
		}
		if target.Unknown || target.Unreachable != "" {
			t.Errorf("with its new token, it is %+v", target)
		}
		return nil
	})
	put("none", "west")
	w.eventually("the hub says that the next one is wrong", func(ctx context.Context) error {
		target, err := w.target(ctx, "renewed")
		if err != nil || target == nil || !strings.Contains(target.Unreachable, "Unauthorized") || target.Labels["region"] != "west" {
			return fmt.Errorf("%+v: %w", target, err)
		}
		if target.Unknown {
			t.Error("what it has is forgotten")
		}
		return nil
	})
	w.must(has(t.Context()))
	if gone, err := w.transport.Recall(t.Context(), "renewed", client.ObjectKeyFromObject(m)); gone || err != nil {
		t.Errorf("of a cluster that is not reached, the Module is gone: %v, %v", gone, err)
	}
	put(w.env.Config(t, "drover-hub-access").BearerToken, "east")
	w.reached("renewed")
	w.must(has(t.Context()))
	server := config.Host
	config.Host = "https://127.0.0.1:1"
	put("none", "elsewhere")
	w.eventually("another server is another cluster", func(ctx context.Context) error {
		target, err := w.target(ctx, "renewed")
		if err != nil || target == nil || target.Labels["region"] != "elsewhere" {
			return fmt.Errorf("%+v: %w", target, err)
		}
		if !target.Unknown || target.Unreachable == "" {
			t.Errorf("with another server, it is %+v", target)
		}
		return nil
	})
	config.Host = server
	put(w.env.Config(t, "drover-hub-access").BearerToken, "east")
	w.eventually("the Module goes", func(ctx context.Context) error {
		gone, err := w.transport.Recall(ctx, "renewed", client.ObjectKeyFromObject(m))
		if err == nil && !gone {
			err = errors.New("it is there")
		}
		return err
	})
}

// TestAWebhookThatDoesNotAnswerIsARefusal: the API server calls it an internal error of its own.
func TestAWebhookThatDoesNotAnswerIsARefusal(t *testing.T) {
	w := newWorld(t)
	secret := w.cluster("guarded", w.kubeconfig(w.env.Config(t, "drover-hub-access")))
	w.reached("guarded")
	m := sent(w.env.Namespace(t), "gpu")
	webhook := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: m.Namespace},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "modules.example.com", SideEffects: ptr.To(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			ClientConfig:      admissionv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/")},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": m.Namespace}},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule: admissionv1.Rule{APIGroups: []string{v1beta1.GroupVersion.Group}, APIVersions: []string{"*"},
					Resources: []string{"modules"}},
			}},
		}},
	}
	w.must(w.admin.Create(t.Context(), webhook))
	t.Cleanup(func() { w.must(client.IgnoreNotFound(w.admin.Delete(context.Background(), webhook))) })
	w.eventually("the API server asks the webhook", func(ctx context.Context) error {
		if err := w.admin.Create(ctx, sent(m.Namespace, "probe"), client.DryRunAll); err == nil {
			return errors.New("it does not")
		}
		return nil
	})
	if err := w.transport.Send(t.Context(), "guarded", m); err == nil || !strings.Contains(err.Error(), "modules.example.com") {
		t.Errorf("the answer is %v", err)
	}
	parcels, err := w.transport.Parcels(t.Context(), "gpu")
	if p := parcels["guarded"]; err != nil || !p.Nothing || !strings.Contains(p.Report.Refused, "modules.example.com") {
		t.Errorf("%+v: %v", p, err)
	}
	secret.Data[direct.KubeconfigKey] = []byte("{")
	w.must(w.admin.Update(t.Context(), secret))
	w.eventually("the cluster is not reached", func(ctx context.Context) error {
		if target, err := w.target(ctx, "guarded"); err != nil || target == nil || target.Unreachable == "" || target.Unknown {
			return fmt.Errorf("%+v: %w", target, err)
		}
		return nil
	})
	secret.Data[direct.KubeconfigKey] = w.kubeconfig(w.env.Config(t, "drover-hub-access"))
	w.must(w.admin.Update(t.Context(), secret))
	w.reached("guarded")
	if parcels, err := w.transport.Parcels(t.Context(), "gpu"); err != nil || parcels["guarded"].Report.Refused == "" {
		t.Errorf("with a new token, what it refused is forgotten: %+v, %v", parcels["guarded"], err)
	}
	w.must(w.admin.Delete(t.Context(), webhook))
	w.eventually("without it, the Module is sent", func(ctx context.Context) error { return w.transport.Send(ctx, "guarded", m) })
}
