// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ichor.maesh.dev/hub/test/sim/fault"
)

// webhook is the admission webhook that faults speak of.
const webhook = "policy.example.org"

// admit asks whether a webhook was ordered to refuse the change. Webhooks see dry runs, too.
func (a *API) admit(r *request, body []byte) error {
	name := cmp.Or(r.name, nameIn(body))
	f, refused := a.Faults.FireIf(fault.AdmissionRefused, fault.Site{Cluster: a.Cluster}, func(f fault.Fault) bool {
		return slices.Contains([]string{"*", r.resource.Plural}, f.Params[fault.ParamResource]) && fault.Matches(f.Params[fault.ParamName], name)
	})
	switch message := f.Params[fault.ParamMessage]; {
	case !refused:
		return nil
	case f.Params[fault.ParamMode] == "fails":
		return apierrors.NewInternalError(fmt.Errorf("failed calling webhook %q: failed to call webhook: %s", webhook, message))
	default:
		err := apierrors.NewForbidden(r.resource.GroupResource(), name, errors.New(message))
		err.ErrStatus.Message = fmt.Sprintf("admission webhook %q denied the request: %s", webhook, message)
		return err
	}
}
