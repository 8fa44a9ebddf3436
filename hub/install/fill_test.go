// SPDX-License-Identifier: Apache-2.0

package install

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func object(g *WithT, text string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	g.Expect(yaml.Unmarshal([]byte(text), &o.Object)).To(Succeed())
	return o
}

func TestWhatSomebodyHasChosenStays(t *testing.T) {
	g := NewWithT(t)
	release := object(g, `
metadata: {name: ichor-hub, labels: {app.kubernetes.io/part-of: ichor-hub}}
spec:
  replicas: 2
  strategy: {rollingUpdate: {maxUnavailable: 0}}
  template:
    spec:
      tolerations: [{key: node-role.kubernetes.io/control-plane}]
      containers:
      - name: manager
        image: ichor.maesh.dev/ichor-hub:dev
        args: [serve, --listen=:8443, --log-format=json, --new-flag=1]
        ports: [{name: https, containerPort: 8443}, {name: probes, containerPort: 9090}]
        resources: {requests: {cpu: 100m}, limits: {memory: 2Gi}}
        volumeMounts: [{name: tls, mountPath: /run/ichor/tls}]
      volumes: [{name: tls, secret: {secretName: ichor-hub-tls}}, {name: scratch, emptyDir: {}}]
`)
	there := object(g, `
metadata: {name: ichor-hub, resourceVersion: "7", labels: {team: a}}
status: {replicas: 3}
spec:
  replicas: 3
  progressDeadlineSeconds: 600
  template:
    spec:
      tolerations: []
      nodeSelector: {pool: mgmt}
      containers:
      - name: proxy
        image: registry.example/proxy
      - name: manager
        image: registry.site/ichor-hub:v0.1.0
        args: [serve, --listen=:9443, --external-url=https://ichor.example.com, --log-format=text]
        ports: [{name: https, containerPort: 9443}]
        resources: {limits: {memory: 4Gi}}
        volumeMounts: [{name: tls, mountPath: /run/ichor/tls, readOnly: true}, {name: ca, mountPath: /ca}]
      volumes: [{name: tls, secret: {secretName: mine}}, {name: ca, configMap: {name: ca}}]
`)
	filled := fill(release, there)
	g.Expect(setImage(filled, "registry.site/ichor-hub:v0.2.0")).To(Succeed())
	g.Expect(filled.Object).To(Equal(object(g, `
metadata: {name: ichor-hub, labels: {app.kubernetes.io/part-of: ichor-hub}}
spec:
  replicas: 3
  strategy: {rollingUpdate: {maxUnavailable: 0}}
  template:
    spec:
      tolerations: []
      containers:
      - name: manager
        image: registry.site/ichor-hub:v0.2.0
        args: [serve, --listen=:9443, --external-url=https://ichor.example.com, --log-format=text, --new-flag=1]
        ports: [{name: https, containerPort: 9443}, {name: probes, containerPort: 9090}]
        resources: {requests: {cpu: 100m}, limits: {memory: 4Gi}}
        volumeMounts: [{name: tls, mountPath: /run/ichor/tls}]
      volumes: [{name: tls, secret: {secretName: mine}}, {name: scratch, emptyDir: {}}]
`).Object))
}

func TestFillingWhatIsFilledChangesNothing(t *testing.T) {
	g := NewWithT(t)
	release := object(g, `{spec: {template: {spec: {containers: [{name: manager, args: [serve, --a=1]}]}}}}`)
	there := object(g, `{spec: {template: {spec: {containers: [{name: manager, args: [serve, --a=2]}]}}}}`)
	once := fill(release, there)
	g.Expect(fill(release, once).Object).To(Equal(once.Object))
}
