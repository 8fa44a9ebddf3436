// SPDX-License-Identifier: Apache-2.0

package keyrotation

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

func scopeOf(keys ...v1alpha1.RotatedKey) kind.Scope {
	return kind.Scope{
		Owner: "default/keys-1", OperationID: "0123456789abcdef", Machines: 3,
		Spec: v1alpha1.TalosOperationSpec{Kind: v1alpha1.KeyRotationKind, KeyRotation: &v1alpha1.KeyRotationParameters{Keys: keys}},
	}
}

var (
	account   = scopeOf(v1alpha1.ServiceAccountKey)
	secretbox = scopeOf(v1alpha1.SecretboxKey)
)

// unitOf is cp-1 in a stage, whose step has succeeded if it makes a call.
func unitOf(stage string, step v1alpha1.OperationStep, change ...func(*kind.Unit)) kind.Unit {
	u := kind.Unit{
		Status: v1alpha1.UnitStatus{Name: "c1-cp-1", Stage: stage, Step: step},
		Machine: &v1alpha1.TalosMachine{
			ObjectMeta: metav1.ObjectMeta{Name: "c1-cp-1"}, Spec: v1alpha1.TalosMachineSpec{Role: v1alpha1.ControlPlaneRole, Address: "10.0.0.1", UUID: "uuid-1"},
			Status: v1alpha1.TalosMachineStatus{NodeName: "cp-1"},
		},
	}
	if step != "" && step != v1alpha1.VerifyingStep && step != v1alpha1.RefreshingStep && step != v1alpha1.AwaitingCredentialsStep {
		u.Status.Outcome = &v1alpha1.CallOutcome{Result: v1alpha1.CallSucceeded}
	}
	for _, c := range change {
		c(&u)
	}
	return u
}

func failed(u *kind.Unit) {
	u.Status.Outcome = &v1alpha1.CallOutcome{Result: v1alpha1.CallFailed, Class: v1alpha1.ErrorPermanent, Message: "it broke"}
}

func timedOut(u *kind.Unit) {
	u.Status.Outcome = &v1alpha1.CallOutcome{Result: v1alpha1.CallFailed, Class: v1alpha1.ErrorTimeout, Message: "late"}
}

func gaveUp(u *kind.Unit) {
	failed(u)
	u.Status.FailureTime = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
}

func held(u *kind.Unit) {
	u.Machine.Annotations = map[string]string{v1alpha1.UpgradeHoldAnnotation: "no"}
}

// seenAs is cp-1, which is well, with a config that is not the one of the pass.
func seenAs(change ...func(*kind.Observation, *look)) kind.Observation {
	o := kind.Observation{
		Talos: talos.Machine{UUID: "uuid-1", NodeName: "cp-1", Stage: talos.StageRunning, Ready: true, BootID: "b"},
		Node:  &kube.Node{Name: "cp-1", Ready: true, BootID: "b"},
	}
	l := look{active: "is", desired: "wanted", marked: "marked"}
	for _, c := range change {
		c(&o, &l)
	}
	o.Own = l
	return o
}

func silent(o *kind.Observation, _ *look)    { o.TalosTrouble = "no answer" }
func there(_ *kind.Observation, l *look)     { l.active, l.looked = "wanted", true }
func markedNow(_ *kind.Observation, l *look) { l.active, l.isMarked, l.looked = "marked", true, true }
func without(words string) func(*kind.Observation, *look) {
	return func(_ *kind.Observation, l *look) { l.missing = words }
}
func late(_ *kind.Observation, l *look) { l.missing, l.restart = "a restart", true }
func with(change func(*look)) func(*kind.Observation, *look) {
	return func(_ *kind.Observation, l *look) { change(l) }
}

func TestNextOfAMachine(t *testing.T) {
	e := New(Options{})
	waitsAt := func(gate, words string) OmegaMatcher {
		return And(HaveField("Verdict", kind.Wait), HaveField("Reason", gate), HaveField("Message", ContainSubstring(words)))
	}
	waits := func(words string) OmegaMatcher { return waitsAt("", words) }
	calls := func(step v1alpha1.OperationStep, hash string) OmegaMatcher {
		return And(HaveField("Verdict", kind.Call), HaveField("Step", step), HaveField("ConfigHash", hash))
	}
	fails := func(words string) OmegaMatcher {
		return And(HaveField("Verdict", kind.Fail), HaveField("Message", ContainSubstring(words)))
	}
	verifies := And(HaveField("Verdict", kind.Wait), HaveField("Step", v1alpha1.VerifyingStep))
	done := HaveField("Verdict", kind.Done)
	for name, row := range map[string]struct {
		scope kind.Scope
		unit  kind.Unit
		seen  kind.Observation
		want  OmegaMatcher
	}{
		"a check":                         {account, unitOf("Check", ""), seenAs(), calls("Checking", "")},
		"a check of who is silent":        {account, unitOf("Check", ""), seenAs(silent), waitsAt("TargetReachable", "does not answer")},
		"a check that finds an obstacle":  {account, unitOf("Check", ""), seenAs(with(func(l *look) { l.refused = "kms" })), fails("kms")},
		"a check while a config is tried": {account, unitOf("Check", ""), seenAs(with(func(l *look) { l.pending = true })), waitsAt("MachineConfigPending", "somebody tries one")},
		"a check that is over":            {account, unitOf("Check", "Checking"), kind.Observation{}, done},
		"a check that was refused":        {account, unitOf("Check", "Checking", failed), seenAs(), fails("it broke")},

		"a pass":                              {account, unitOf("AcceptServiceAccount", ""), seenAs(), calls("Applying", "wanted")},
		"a pass that somebody has gone":       {account, unitOf("AcceptServiceAccount", ""), seenAs(there), verifies},
		"a pass of who cannot be read":        {account, unitOf("AcceptServiceAccount", ""), seenAs(with(func(l *look) { l.trouble = "x" })), waitsAt("MachineConfigKnown", "x")},
		"a pass of another machine":           {account, unitOf("AcceptServiceAccount", ""), seenAs(func(o *kind.Observation, _ *look) { o.Talos.UUID = "other" }), fails("has UUID")},
		"a pass of who is held by now":        {account, unitOf("SwapServiceAccount", "", held), seenAs(), waitsAt("ControlPlaneHeld", "ichor machine unhold c1-cp-1")},
		"a drop, and another lags behind":     {secretbox, unitOf("DropSecretbox", ""), seenAs(with(func(l *look) { l.others = "cp-3 lags" })), waitsAt("KeysInUse", "cp-3 lags")},
		"a drop writes what is left":          {secretbox, unitOf("DropSecretbox", ""), seenAs(), And(calls("Rewriting", ""), HaveField("Anew", true), HaveField("GoOn", false))},
		"a drop, one page":                    {secretbox, unitOf("DropSecretbox", "Rewriting", cursor("secrets a/x", 500)), seenAs(), And(calls("Rewriting", ""), HaveField("GoOn", true))},
		"a drop, the last page":               {secretbox, unitOf("DropSecretbox", "Rewriting", cursor("", 700)), seenAs(), calls("Applying", "wanted")},
		"a drop, and another lags meanwhile":  {secretbox, unitOf("DropSecretbox", "Rewriting", cursor("", 700)), seenAs(with(func(l *look) { l.others = "cp-3 lags" })), HaveField("Verdict", kind.Park)},
		"a drop, and a webhook refuses":       {secretbox, unitOf("DropSecretbox", "Rewriting", failed), seenAs(), fails("it broke")},
		"a drop of tokens writes nothing":     {account, unitOf("DropServiceAccount", ""), seenAs(), calls("Applying", "wanted")},
		"the way back writes what is left":    {secretbox, unitOf("BackAcceptSecretbox", ""), seenAs(), calls("Rewriting", "")},
		"a drop is proved by what is read":    {secretbox, unitOf("DropSecretbox", "Verifying"), seenAs(there), calls("Proving", "")},
		"and so is the way back":              {secretbox, unitOf("BackAcceptSecretbox", "Verifying"), seenAs(there), calls("Proving", "")},
		"applied":                             {account, unitOf("SwapServiceAccount", "Applying"), seenAs(there), verifies},
		"refused":                             {account, unitOf("SwapServiceAccount", "Applying", failed), seenAs(), fails("it broke")},
		"restarted":                           {account, unitOf("SwapServiceAccount", "Restarting"), seenAs(markedNow), verifies},
		"silent meanwhile":                    {account, unitOf("SwapServiceAccount", "Verifying"), seenAs(silent), waits("waiting for the Talos API")},
		"a file that is not written":          {secretbox, unitOf("SwapSecretbox", "Verifying"), seenAs(there, without("the file")), waits("the file")},
		"an API server that has not read it":  {secretbox, unitOf("SwapSecretbox", "Verifying"), seenAs(there, late), calls("Restarting", "marked")},
		"and still has not after a restart":   {secretbox, unitOf("SwapSecretbox", "Verifying"), seenAs(markedNow, late), waits("a restart")},
		"and has after a restart":             {secretbox, unitOf("SwapSecretbox", "Verifying"), seenAs(markedNow), calls("Applying", "wanted")},
		"a machine that is not well":          {secretbox, unitOf("SwapSecretbox", "Verifying"), seenAs(there, func(o *kind.Observation, _ *look) { o.Node.Ready = false }), waits("until the Node is Ready")},
		"a config of somebody else":           {secretbox, unitOf("SwapSecretbox", "Verifying"), seenAs(), fails("somebody else has changed it")},
		"proved by its file":                  {secretbox, unitOf("SwapSecretbox", "Verifying"), seenAs(there), done},
		"to be proved by tokens":              {account, unitOf("SwapServiceAccount", "Verifying"), seenAs(there), calls("Proving", "")},
		"a migration is proved by tokens":     {account, unitOf("Migrate", "Verifying"), seenAs(there), calls("Proving", "")},
		"a migration without that key is not": {secretbox, unitOf("Migrate", "Verifying"), seenAs(there), done},
		"proved by tokens":                    {account, unitOf("SwapServiceAccount", "Proving"), kind.Observation{}, done},
		"not proved by tokens":                {account, unitOf("SwapServiceAccount", "Proving", timedOut), seenAs(there), fails("late")},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(e.Next(row.scope, row.unit, asOf(row.unit, row.seen))).To(row.want)
		})
	}
}

// asOf is a look for the stage of a unit, unless it was for another.
func asOf(unit kind.Unit, seen kind.Observation) kind.Observation {
	if l, ok := seen.Own.(look); ok && l.stage == "" {
		l.stage = unit.Status.Stage
		seen.Own = l
	}
	return seen
}

// A look for another pass, or for another step, proves nothing: the observer does not know of either.
func TestOldLooks(t *testing.T) {
	g := NewWithT(t)
	e := New(Options{})
	before := seenAs(there, with(func(l *look) { l.stage = "AcceptSecretbox" }))
	g.Expect(e.Next(secretbox, unitOf("SwapSecretbox", ""), before)).To(And(HaveField("Verdict", kind.Wait), HaveField("Step", BeEmpty())), "not there already")
	g.Expect(e.Next(secretbox, unitOf("SwapSecretbox", "Verifying"), before)).To(HaveField("Verdict", kind.Wait), "not proved")
	unlooked := seenAs(there, with(func(l *look) { l.stage, l.looked = "SwapSecretbox", false }))
	g.Expect(e.Next(secretbox, unitOf("SwapSecretbox", "Verifying"), unlooked)).To(HaveField("Verdict", kind.Wait), "not proved")
}

// whole is a stage without machines.
func whole(stage string, step v1alpha1.OperationStep, change ...func(*kind.Unit)) kind.Unit {
	u := unitOf(stage, step, change...)
	u.Machine, u.Status.Name = nil, stage
	return u
}

func cursor(at string, done int64) func(*kind.Unit) {
	return func(u *kind.Unit) { u.Status.Progress = &v1alpha1.UnitProgress{Cursor: at, Done: done} }
}

func TestNextOfACluster(t *testing.T) {
	e, until := New(Options{}), time.Date(2026, 1, 3, 3, 14, 5, 0, time.UTC)
	confirmed := scopeOf(v1alpha1.ServiceAccountKey)
	confirmed.ConfirmedStage = "RefreshTokens"
	published := scopeOf(v1alpha1.ServiceAccountKey)
	published.ConfirmedStage = "PublishKeys"
	foreign := clusterLook{issuer: "https://bucket.example", keyID: "kid-1"}
	const publish = "publish key kid-1, which /openid/v1/jwks has by now, at https://bucket.example; then: ichor operation confirm keys-1"
	other := scopeOf(v1alpha1.ServiceAccountKey)
	other.ConfirmedStage = "Swap"
	for name, row := range map[string]struct {
		scope kind.Scope
		unit  kind.Unit
		seen  clusterLook
		want  kind.Action
	}{
		"keys":                            {account, whole("Keys", ""), clusterLook{}, kind.Action{Verdict: kind.Call, Step: "Generating"}},
		"keys, kept":                      {account, whole("Keys", "Generating"), clusterLook{}, kind.Action{Verdict: kind.Done}},
		"keys, not kept":                  {account, whole("Keys", "Generating", failed), clusterLook{}, kind.Action{Verdict: kind.Fail, Message: "Generating failed: it broke"}},
		"a snapshot":                      {secretbox, whole("Snapshot", ""), clusterLook{}, kind.Action{Verdict: kind.Call, Step: "Snapshotting"}},
		"the bundle":                      {secretbox, whole("Bundle", ""), clusterLook{}, kind.Action{Verdict: kind.Call, Step: "Renewing"}},
		"the cluster verifies tokens":     {account, whole("PublishKeys", ""), clusterLook{keyID: "k"}, kind.Action{Verdict: kind.Done}},
		"nobody knows who does":           {account, whole("PublishKeys", ""), clusterLook{trouble: "no answer"}, kind.Action{Verdict: kind.Wait, Reason: "TargetReachable", Message: "no answer"}},
		"somebody else verifies tokens":   {account, whole("PublishKeys", ""), foreign, kind.Action{Verdict: kind.Wait, Step: "AwaitingCredentials", Message: publish}},
		"and has not the new key yet":     {account, whole("PublishKeys", "AwaitingCredentials"), foreign, kind.Action{Verdict: kind.Wait, Step: "AwaitingCredentials", Message: publish}},
		"and has it, as somebody says":    {published, whole("PublishKeys", "AwaitingCredentials"), foreign, kind.Action{Verdict: kind.Done, Message: "confirmed by hand"}},
		"and nobody has looked at it yet": {account, whole("PublishKeys", "AwaitingCredentials"), clusterLook{}, kind.Action{Verdict: kind.Wait, Message: "looking where tokens are verified"}},

		"tokens":          {account, whole("RefreshTokens", ""), clusterLook{}, kind.Action{Verdict: kind.Wait, Step: "Refreshing", Message: "waiting until tokens of the old key are refreshed"}},
		"tokens, a while": {account, whole("RefreshTokens", "Refreshing"), clusterLook{until: until}, kind.Action{Verdict: kind.Wait, Message: "until 2026-01-03T03:14:05Z, when pods have new tokens; end it earlier with: ichor operation confirm keys-1"}},
		"tokens, a while, and some that nobody renews": {account, whole("RefreshTokens", "Refreshing"), clusterLook{until: until, legacy: []string{"a/x", "b/y"}}, kind.Action{
			Verdict: kind.Wait, Message: "until 2026-01-03T03:14:05Z, when pods have new tokens; 2 Secrets with a token of the old key: make anew a/x, b/y; end it earlier with: ichor operation confirm keys-1",
		}},
		"tokens that nobody renews": {account, whole("RefreshTokens", "Refreshing"), clusterLook{until: until, over: true, legacy: []string{"a", "b", "c", "d"}}, kind.Action{
			Verdict: kind.Wait, Message: "4 Secrets with a token of the old key, which nobody renews: delete and make anew a, b, c and 1 more; end it earlier with: ichor operation confirm keys-1",
		}},
		"tokens, of which nobody knows": {account, whole("RefreshTokens", "Refreshing"), clusterLook{trouble: "no answer"}, kind.Action{
			Verdict: kind.Wait, Message: "waiting for the Kubernetes API, to see who uses such tokens: no answer",
		}},
		"tokens, refreshed":         {account, whole("RefreshTokens", "Refreshing"), clusterLook{until: until, over: true}, kind.Action{Verdict: kind.Done}},
		"tokens, confirmed":         {confirmed, whole("RefreshTokens", "Refreshing"), clusterLook{until: until, legacy: []string{"a/x"}}, kind.Action{Verdict: kind.Done, Message: "confirmed by hand, although tokens of the old key are in a/x"}},
		"tokens, something else is": {other, whole("RefreshTokens", "Refreshing"), clusterLook{}, kind.Action{Verdict: kind.Wait, Message: "waiting until tokens of the old key are refreshed"}},

		"tokens of the new key": {account, whole("BackRefreshTokens", "Refreshing"), clusterLook{until: until, over: true, legacy: []string{"a"}}, kind.Action{
			Verdict: kind.Wait, Message: "1 Secret with a token of the new key, which nobody renews: delete and make anew a; end it earlier with: ichor operation confirm keys-1",
		}},

		"objects, one page, and one lags": {secretbox, whole("Rewrite", "Rewriting", cursor("secrets a/x", 500)), clusterLook{others: "cp-3"}, kind.Action{Verdict: kind.Wait, Reason: "KeysInUse", Message: "cp-3"}},
		"objects, one page, and one is silent": {secretbox, whole("Rewrite", "Rewriting", cursor("secrets a/x", 500)), clusterLook{trouble: "no answer"}, kind.Action{
			Verdict: kind.Wait, Reason: "TargetReachable", Message: "no answer",
		}},
		"objects":                    {secretbox, whole("Rewrite", ""), clusterLook{}, kind.Action{Verdict: kind.Call, Step: "Rewriting"}},
		"objects, and one lags":      {secretbox, whole("Rewrite", ""), clusterLook{others: "cp-3"}, kind.Action{Verdict: kind.Wait, Reason: "KeysInUse", Message: "cp-3"}},
		"objects, one page":          {secretbox, whole("Rewrite", "Rewriting", cursor("secrets a/x", 500)), clusterLook{}, kind.Action{Verdict: kind.Call, Step: "Rewriting", GoOn: true}},
		"objects, the last page":     {secretbox, whole("Rewrite", "Rewriting", cursor("", 700)), clusterLook{}, kind.Action{Verdict: kind.Done}},
		"objects, a webhook refuses": {secretbox, whole("Rewrite", "Rewriting", cursor("secrets a/x", 9), failed), clusterLook{}, kind.Action{Verdict: kind.Fail, Message: "Rewriting failed: it broke"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			action := e.Next(row.scope, row.unit, kind.Observation{Own: row.seen})
			g.Expect(action).To(Equal(row.want))
			g.Expect(len(action.Message)).To(BeNumerically("<=", 256))
		})
	}
}

// What was begun is left where it is, whatever it waits for or failed of: stages of their own take it back. The way back is gone to its end, as
// is what comes before anything was changed.
func TestTurnBack(t *testing.T) {
	e := New(Options{})
	back := scopeOf(v1alpha1.ServiceAccountKey, v1alpha1.SecretboxKey)
	back.TurnBack = true
	for name, row := range map[string]struct {
		unit kind.Unit
		seen kind.Observation
		want kind.Verdict
	}{
		"nobody was told yet":              {unitOf("AcceptServiceAccount", ""), seenAs(), kind.Done},
		"an API server does not come up":   {unitOf("SwapServiceAccount", "Verifying"), seenAs(there, without("its API server")), kind.Done},
		"nor was it after a while":         {unitOf("SwapSecretbox", "Verifying", timedOut), seenAs(there, without("its API server")), kind.Done},
		"a machine is silent":              {unitOf("AcceptSecretbox", "Verifying"), seenAs(silent), kind.Done},
		"tokens are not proved":            {unitOf("SwapServiceAccount", "Proving", timedOut), seenAs(there), kind.Done},
		"a key that nobody publishes":      {whole("PublishKeys", "AwaitingCredentials"), kind.Observation{}, kind.Done},
		"tokens that nobody renews":        {whole("RefreshTokens", "Refreshing"), kind.Observation{Own: clusterLook{legacy: []string{"a/x"}}}, kind.Done},
		"in the middle of objects":         {whole("Rewrite", "Rewriting", cursor("secrets a/x", 9)), kind.Observation{}, kind.Done},
		"a webhook refuses":                {whole("Rewrite", "Rewriting", failed), kind.Observation{}, kind.Done},
		"documents":                        {unitOf("Migrate", "Verifying"), seenAs(there, without("its API server")), kind.Wait},
		"tokens of the new key":            {whole("BackRefreshTokens", "Refreshing"), kind.Observation{Own: clusterLook{legacy: []string{"a/x"}}}, kind.Wait},
		"the way back of a machine":        {unitOf("BackSwapSecretbox", ""), seenAs(), kind.Call},
		"an old key that is being dropped": {unitOf("DropServiceAccount", "Verifying"), seenAs(there, without("its API server")), kind.Wait},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(e.Next(back, row.unit, asOf(row.unit, row.seen)).Verdict).To(Equal(row.want))
		})
	}
}

func TestSettle(t *testing.T) {
	e := New(Options{})
	for name, row := range map[string]struct {
		unit kind.Unit
		seen kind.Observation
		want kind.Verdict
	}{
		"a check":                  {unitOf("Check", "Checking"), seenAs(), kind.Park},
		"before a pass":            {unitOf("SwapSecretbox", ""), seenAs(), kind.Park},
		"applied":                  {unitOf("SwapSecretbox", "Applying"), seenAs(there), kind.Wait},
		"applied, and refused":     {unitOf("SwapSecretbox", "Applying", failed), seenAs(), kind.Park},
		"given up":                 {unitOf("SwapSecretbox", "Verifying", gaveUp), seenAs(there), kind.Park},
		"not proved yet":           {unitOf("SwapSecretbox", "Verifying"), seenAs(there, without("x")), kind.Wait},
		"proved":                   {unitOf("SwapSecretbox", "Verifying"), seenAs(there), kind.Done},
		"to be restarted":          {unitOf("SwapSecretbox", "Verifying"), seenAs(there, late), kind.Call},
		"waiting for tokens":       {whole("RefreshTokens", "Refreshing"), kind.Observation{}, kind.Park},
		"in the middle of objects": {whole("Rewrite", "Rewriting", cursor("secrets a/x", 9)), kind.Observation{}, kind.Park},
		"before a drop":            {unitOf("DropSecretbox", "Rewriting", cursor("secrets a/x", 9)), seenAs(), kind.Park},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(e.Settle(secretbox, row.unit, asOf(row.unit, row.seen)).Verdict).To(Equal(row.want))
		})
	}
}

func TestUnsafe(t *testing.T) {
	g := NewWithT(t)
	e := New(Options{})
	for _, stage := range []string{"SwapServiceAccount", "RefreshTokens", "DropServiceAccount", "SwapSecretbox", "Rewrite", "DropSecretbox"} {
		g.Expect(e.Unsafe(unitOf(stage, v1alpha1.ApplyingStep))).NotTo(BeEmpty(), stage)
		g.Expect(e.Unsafe(unitOf(stage, v1alpha1.ApplyingStep, failed))).To(BeEmpty(), stage)
		g.Expect(e.Unsafe(unitOf(stage, v1alpha1.ApplyingStep, timedOut))).NotTo(BeEmpty(), stage)
		g.Expect(e.Unsafe(unitOf(stage, ""))).To(BeEmpty(), stage)
	}
	for _, stage := range []string{"Check", "Keys", "Migrate", "AcceptServiceAccount", "AcceptSecretbox", "Bundle"} {
		g.Expect(e.Unsafe(unitOf(stage, v1alpha1.ApplyingStep))).To(BeEmpty(), stage)
	}
}

// A cursor names the kind and the last object of it that is done. What it names may be encrypted no more.
func TestCursor(t *testing.T) {
	for cursor, want := range map[string][2]string{
		"":                       {"secrets", ""},
		"secrets ":               {"secrets", ""},
		"secrets a/x":            {"secrets", "a/x"},
		"deployments.apps b/y.z": {"deployments.apps", "b/y.z"},
		"configmaps a/x":         {"secrets", ""},
	} {
		resource, after := cursorOf(cursor, []string{"secrets", "deployments.apps"})
		NewWithT(t).Expect([2]string{resource, after}).To(Equal(want), cursor)
	}
}

func TestParted(t *testing.T) {
	g := NewWithT(t)
	a := "-----BEGIN PUBLIC KEY-----\nYQ==\n-----END PUBLIC KEY-----\n"
	b := strings.ReplaceAll(a, "YQ==", "Yg==")
	g.Expect(parted(a + b)).To(Equal([]string{a, b}))
	g.Expect(parted("")).To(BeEmpty())
}
