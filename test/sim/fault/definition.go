// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"fmt"
	"slices"
	"strings"
)

// Names of the fault points. The simulated machine asks for its point by name at the moment that the fault concerns.
const (
	// InstallerExit makes a run of the installer end with a non-zero exit code.
	InstallerExit = "installer-exit"
	// Fallback makes the next boot into a newly installed slot fail, so that the machine comes back on the old one.
	Fallback = "fallback"
	// Unreachable cuts a machine's APIs off the network while the machine itself goes on running.
	Unreachable = "unreachable"
	// PullFailure makes an image pull fail.
	PullFailure = "pull-failure"
)

// Parameters of faults.
const (
	// ParamCode is the exit code of InstallerExit.
	ParamCode = "code"
	// ParamAPI says which API Unreachable concerns: talos, kube or both.
	ParamAPI = "api"
	// ParamMode says how Unreachable shows: refuse or blackhole.
	ParamMode = "mode"
)

// Definition describes one kind of fault: what the command line shows and what Inject checks.
type Definition struct {
	// Name is the fault point.
	Name string
	// Summary is one line of help.
	Summary string
	// Standing faults hold until they are cleared; the others fire a number of times.
	Standing bool
	// Params are the parameters the fault understands.
	Params []Param
}

// Param is one parameter of a fault.
type Param struct {
	// Name is the key in Fault.Params.
	Name string
	// Default is used when the fault does not say.
	Default string
	// Values are the accepted values; empty accepts any.
	Values []string
	// Summary is one line of help.
	Summary string
}

// Definitions is the table of all faults. A new fault is a row here and one question at the place that it concerns.
var Definitions = []Definition{
	{
		Name:    InstallerExit,
		Summary: "the installer ends with a non-zero exit code and the inactive slot stays as it was",
		Params:  []Param{{Name: ParamCode, Default: "1", Summary: "exit code"}},
	},
	{
		Name:    Fallback,
		Summary: "the next boot into a newly installed slot fails and the machine comes back on the old one",
	},
	{
		Name:     Unreachable,
		Summary:  "the machine runs, but its APIs cannot be reached",
		Standing: true,
		Params: []Param{
			{Name: ParamAPI, Default: "both", Values: []string{"talos", "kube", "both"}, Summary: "which API"},
			{Name: ParamMode, Default: "refuse", Values: []string{"refuse", "blackhole"}, Summary: "how it shows"},
		},
	},
	{
		Name:    PullFailure,
		Summary: "an image pull fails",
	},
}

// Lookup finds a definition by its name.
func Lookup(name string) (Definition, bool) {
	i := slices.IndexFunc(Definitions, func(d Definition) bool { return d.Name == name })
	if i < 0 {
		return Definition{}, false
	}
	return Definitions[i], true
}

// complete checks a fault against its definition and returns it with the defaults filled in.
func (d Definition) complete(f Fault) (Fault, error) {
	if d.Standing && f.Times != 0 {
		return f, fmt.Errorf("fault %s stands until it is cleared: it takes no number of times", d.Name)
	}
	for name := range f.Params {
		if !slices.ContainsFunc(d.Params, func(p Param) bool { return p.Name == name }) {
			return f, fmt.Errorf("fault %s has no parameter %q", d.Name, name)
		}
	}
	params := make(map[string]string, len(d.Params))
	for _, p := range d.Params {
		value, err := p.value(f.Params)
		if err != nil {
			return f, fmt.Errorf("fault %s: %w", d.Name, err)
		}
		params[p.Name] = value
	}
	f.Params = params
	return f, nil
}

func (p Param) value(given map[string]string) (string, error) {
	value, ok := given[p.Name]
	if !ok {
		return p.Default, nil
	}
	if len(p.Values) > 0 && !slices.Contains(p.Values, value) {
		return "", fmt.Errorf("%s=%s: want one of %s", p.Name, value, strings.Join(p.Values, ", "))
	}
	return value, nil
}
