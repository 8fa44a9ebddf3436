// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"sigs.k8s.io/yaml"
)

// exceptions are what is known and right all the same.
type exceptions struct {
	// Unused are rights that no request of the tests shows the use of.
	Unused []unusedException `json:"unused"`

	// Refused are what tests have the hub refused on purpose.
	Refused []refusedException `json:"refused"`
}

type unusedException struct {
	Role      string   `json:"role"` // Such as ClusterRole ichor-hub.
	Group     string   `json:"group"`
	Resources []string `json:"resources"`
	Verbs     []string `json:"verbs"`
	Reason    string   `json:"reason"`

	// Sometimes says that a run may show the use of it, and another one not.
	Sometimes bool `json:"sometimes"`
}

type refusedException struct {
	Group    string `json:"group"`
	Resource string `json:"resource"`
	Verb     string `json:"verb"`
	By       string `json:"by"` // RBAC, or admission.
	Reason   string `json:"reason"`
}

func readExceptions(path string) (exceptions, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return exceptions{}, err
	}
	var e exceptions
	if err := yaml.UnmarshalStrict(content, &e); err != nil {
		return exceptions{}, fmt.Errorf("%s: %w", path, err)
	}
	for i, u := range e.Unused {
		if u.Role == "" || u.Reason == "" || len(u.Resources) == 0 || len(u.Verbs) == 0 {
			return exceptions{}, fmt.Errorf("%s: unused[%d]: want role, resources, verbs and a reason", path, i)
		}
	}
	for i, r := range e.Refused {
		if r.Reason == "" || r.Resource == "" || r.Verb == "" {
			return exceptions{}, fmt.Errorf("%s: refused[%d]: want resource, verb, by and a reason", path, i)
		}
		if r.By != byRBAC && r.By != byAdmission {
			return exceptions{}, fmt.Errorf("%s: refused[%d].by %q: want %s or %s", path, i, r.By, byRBAC, byAdmission)
		}
	}
	return e, nil
}

// grants are the rights that an exception is about.
func (u unusedException) grants() (all []grant) {
	for _, resource := range u.Resources {
		for _, verb := range u.Verbs {
			all = append(all, grant{role: u.Role, verb: verb, group: u.Group, resource: resource})
		}
	}
	return all
}

// apply takes what is known from the rights that are unused, and returns the rest. An exception for a right that is used, or that there is
// not, is an error: who reads it would believe it.
func (e exceptions) apply(r *rights) (unknown []grant, err error) {
	unused := r.unused()
	var errs []error
	for _, exception := range e.Unused {
		for _, grant := range exception.grants() {
			switch at := slices.Index(unused, grant); {
			case at >= 0:
				unused = slices.Delete(unused, at, at+1)
			case slices.Contains(r.all, grant):
				if exception.Sometimes {
					continue
				}
				errs = append(errs, fmt.Errorf("exception for %s: it is used", grant))
			default:
				errs = append(errs, fmt.Errorf("exception for %s: no role has it, or it is in the list twice", grant))
			}
		}
	}
	return unused, errors.Join(errs...)
}

// knows says whether a refusal is one that a test provokes.
func (e exceptions) knows(r refusal) bool {
	return slices.ContainsFunc(e.Refused, func(x refusedException) bool {
		return r == refusal{verb: x.Verb, group: x.Group, resource: x.Resource, by: x.By}
	})
}
