{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{- define "ichor-hub.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | trunc 63 | quote }}
{{- end }}

{{- define "ichor-hub.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{- /* Whether the API server may write down who created an operation. */ -}}
{{- define "ichor-hub.createdBy" -}}
{{- $known := .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" -}}
{{- if or (eq .Values.policies.createdBy "Always") (and (eq .Values.policies.createdBy "Auto") $known) }}true{{ end }}
{{- end }}

{{- define "ichor-hub.args" -}}
{{- with .Values.logLevel }}
- --log-level={{ . }}
{{- end }}
{{- with .Values.externalURL }}
- --external-url={{ . }}
{{- end }}
{{- with .Values.imageFactory }}
- --image-factory={{ . }}
{{- end }}
{{- with .Values.namespace }}
- --namespace={{ . }}
{{- end }}
{{- with .Values.watchFilter }}
- --watch-filter={{ . }}
{{- end }}
{{- if .Values.oidc.issuerURL }}
- --oidc-issuer-url={{ .Values.oidc.issuerURL }}
- --oidc-client-id={{ required "oidc.clientID: it is needed with oidc.issuerURL" .Values.oidc.clientID }}
{{- if not .Values.externalURL }}
{{- fail "externalURL: it is needed with oidc.issuerURL, for the way back from the provider" }}
{{- end }}
{{- with .Values.oidc.cliClientID }}
- --oidc-cli-client-id={{ . }}
{{- end }}
{{- with .Values.oidc.scopes }}
- --oidc-scopes={{ join "," . }}
{{- end }}
{{- with .Values.oidc.usernameClaim }}
- --oidc-username-claim={{ . }}
{{- end }}
{{- with .Values.oidc.usernamePrefix }}
- --oidc-username-prefix={{ . }}
{{- end }}
{{- with .Values.oidc.groupsClaim }}
- --oidc-groups-claim={{ . }}
{{- end }}
{{- with .Values.oidc.groupsPrefix }}
- {{ printf "--oidc-groups-prefix=%s" . | quote }}
{{- end }}
{{- if .Values.oidc.clientSecret.name }}
- --oidc-client-secret-file=/run/ichor/oidc-client/{{ .Values.oidc.clientSecret.key }}
{{- end }}
{{- if .Values.oidc.ca.configMap }}
- --oidc-ca-file=/run/ichor/oidc-ca/{{ .Values.oidc.ca.key }}
{{- end }}
{{- end }}
{{- range .Values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{- define "ichor-hub.volumeMounts" -}}
{{- if .Values.oidc.clientSecret.name }}
- name: oidc-client
  mountPath: /run/ichor/oidc-client
  readOnly: true
{{- end }}
{{- if .Values.oidc.ca.configMap }}
- name: oidc-ca
  mountPath: /run/ichor/oidc-ca
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "ichor-hub.volumes" -}}
{{- with .Values.oidc.clientSecret.name }}
- name: oidc-client
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- with .Values.oidc.ca.configMap }}
- name: oidc-ca
  configMap:
    name: {{ . }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "ichor-hub.dnsNames" -}}
{{- range .Values.tls.certManager.dnsNames }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{- define "ichor-hub.issuerRef" -}}
issuerRef:
{{- if .Values.tls.certManager.issuerRef.name }}
{{ toYaml .Values.tls.certManager.issuerRef | indent 2 }}
{{- else }}
  kind: Issuer
  name: ichor-hub-selfsigned
{{- end }}
{{- end }}

{{- define "ichor-hub.scrapeTLS" -}}
tlsConfig:
{{- if .Values.prometheus.serviceMonitor.verify }}
  serverName: ichor-hub.{{ .Release.Namespace }}.svc
  ca:
    secret:
      name: {{ .Values.tls.secretName }}
      key: ca.crt
{{- else }}
  insecureSkipVerify: true
{{- end }}
{{- end }}
