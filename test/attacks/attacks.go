// SPDX-License-Identifier: Apache-2.0

// Package attacks is what an adversary tries on Drover, one row for each attempt: who tries what,
// why it must fail, and what answers. The attempts are made on a real API server with the Node
// authorizer, NodeRestriction and Drover's policies and roles, beside the operator's controllers,
// and with the real kmod where that is the way in. `make attacks` runs them; the first table of
// docs/reference/security.md is made of the same rows.
//
// BREAK=name takes one answer away, an admission policy or a check in Go, and tries what it alone
// answers: that has to succeed. BREAKS=all does so with each of them, one after another.
package attacks

import (
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Attack is one row.
type Attack struct {
	// Who tries it, and so what they have in their hands.
	Who Identity
	// What they try, in the words that follow "A node's kubelet …".
	What string
	// Why it must fail: what it would be worth.
	Why string
	// Answer is what stops it.
	Answer Answer
	// Says is a part of the words in which the answer comes; a policy's name is one in any case. An
	// attempt that is stopped by other words was stopped by something else, which is an error as well.
	Says string
	// Try makes the attempt. It returns nil if it had success, or else the words that stopped it. What
	// has to work before, ends the test where it does not.
	Try func(*Scene) error
}

// Identity is who attacks.
type Identity string

// Identities, by what they hold.
const (
	Tenant          Identity = "A tenant with `edit`"
	Debugger        Identity = "A tenant who may debug pods"
	Editor          Identity = "A tenant with `drover-module-editor`"
	Kubelet         Identity = "A node's kubelet"
	Agent           Identity = "A node's agent"
	OperatorToken   Identity = "The operator's token"
	Spoke           Identity = "A spoke"
	HubAccess       Identity = "A hub's token for a spoke"
	Reader          Identity = "A reader with `drover-module-viewer`"
	PreflightEditor Identity = "A user with `drover-preflight-editor`"
	Remover         Identity = "A user who may delete namespaces"
	Nobody          Identity = "Somebody without a token"
	Image           Identity = "An image"
	Registry        Identity = "A registry"
)

// Answer is what stops an attack.
type Answer struct {
	kind answerKind
	// name of the policy or of the check.
	name string
}

type answerKind int

const (
	byPolicy answerKind = iota
	byCheck
	byRBAC
	byNode
	byRestriction
	bySchema
	byLibrary
)

// Answers that are no part of Drover's programs, and that only an administrator could take away.
var (
	// RBAC is what the roles in config/ do not grant.
	RBAC = Answer{kind: byRBAC}
	// NodeAuthorizer lets a kubelet read only what its own pods need.
	NodeAuthorizer = Answer{kind: byNode}
	// NodeRestriction lets a kubelet write its own node only, and no label that is kept from it.
	NodeRestriction = Answer{kind: byRestriction}
	// Schema is what a CustomResourceDefinition itself does not admit.
	Schema = Answer{kind: bySchema}
	// Library is what go-containerregistry, by which images are fetched, does not take.
	Library = Answer{kind: byLibrary}
)

// Policy is an admission policy of config/policies.
func Policy(name string) Answer { return Answer{kind: byPolicy, name: name} }

// Check is a check in Go: a key of [checks].
func Check(name string) Answer { return Answer{kind: byCheck, name: name} }

// String is what the page says.
func (a Answer) String() string {
	switch a.kind {
	case byPolicy:
		return "policy `" + a.name + "`"
	case byCheck:
		return "`" + checks[a.name].Package + "`"
	case byRBAC:
		return "RBAC"
	case byNode:
		return "Node authorizer"
	case byRestriction:
		return "NodeRestriction"
	case bySchema:
		return "CRD"
	case byLibrary:
		return "go-containerregistry"
	}
	return ""
}

// gave reports whether an error comes from this answer and no other.
func (a Answer) gave(err error) bool {
	says := err.Error()
	switch a.kind {
	case byPolicy:
		return (apierrors.IsForbidden(err) || apierrors.IsInvalid(err)) && strings.Contains(says, "ValidatingAdmissionPolicy '"+a.name+"'")
	case byRBAC:
		return apierrors.IsForbidden(err) && strings.Contains(says, " cannot ")
	case byNode:
		return apierrors.IsForbidden(err) && strings.Contains(says, "no relationship found between node")
	case byRestriction:
		return apierrors.IsForbidden(err) && !strings.Contains(says, " cannot ") && !strings.Contains(says, "ValidatingAdmissionPolicy")
	case bySchema:
		return apierrors.IsInvalid(err) && !strings.Contains(says, "ValidatingAdmissionPolicy")
	case byCheck, byLibrary: // what they say is in the row
	}
	return true
}

// stopped is an attack's end that no error of the API says.
func stopped(format string, args ...any) error { return fmt.Errorf(format, args...) }

// All are the attacks, by who makes them.
func All() []Attack {
	return slices.Concat(tenantAttacks(), policedAttacks(), taintAttacks(), modprobeAttacks(), nodeAttacks(), jobAttacks(), labelAttacks(),
		foreignNodeAttacks(), agentAttacks(), foreignAgentAttacks(), operatorAttacks(), forgedAttacks(), metricsAttacks(), clusterAttacks(),
		spokeAttacks(), imageAttacks(), foreignImageAttacks(), registryAttacks(), foreignRegistryAttacks())
}

// Table is the table of the page: a row for each attack.
func Table() string {
	var out strings.Builder
	out.WriteString("| who | tries to | it must fail, since | what answers |\n|---|---|---|---|\n")
	who := Identity("")
	for _, a := range All() {
		shown := ""
		if a.Who != who {
			shown, who = string(a.Who), a.Who
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %s |\n", shown, a.What, a.Why, a.Answer)
	}
	return out.String()
}
