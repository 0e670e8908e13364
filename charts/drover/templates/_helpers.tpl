{{/* An image's full name. Takes {root, image}: by digest, else by tag, else by the chart's appVersion. A name without a registry would be that of a
stranger's image on a public registry. */}}
{{- define "drover.image" -}}
{{- $all := .root.Values.images -}}
{{- $whole := regexMatch "^(localhost|[^/]*[.:][^/]*)/" .image.repository -}}
{{- if or .image.registry (not $whole) -}}
{{- $missing := "images.registry is empty: set it to the registry that has Drover's images, such as registry.example.com/you (docs/guide/install.md)" -}}
{{- .image.registry | default $all.registry | required $missing | trimSuffix "/" }}/
{{- end -}}
{{- .image.repository -}}
{{- if .image.digest }}@{{ .image.digest }}{{ else }}:{{ .image.tag | default $all.tag | default .root.Chart.AppVersion }}{{ end -}}
{{- end -}}

{{/* Buildah's, which has no version of ours: by digest, or nothing. */}}
{{- define "drover.buildah" -}}
{{- if .Values.images.buildah.repository }}{{ include "drover.image" (dict "root" . "image" .Values.images.buildah) }}{{ end -}}
{{- end -}}

{{/* Where a pod runs, and who pulls its images. Takes {root, settings}. */}}
{{- define "drover.placement" -}}
{{- with .settings.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .settings.tolerations }}
tolerations: {{- toYaml . | nindent 0 }}
{{- end }}
{{- with .settings.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .settings.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 0 }}
{{- end }}
{{- end -}}

{{/* Variables of a program that calls servers outside of its cluster. The API server is never behind the proxy. */}}
{{- define "drover.outside.env" -}}
{{- with .Values.proxy.http }}
- {name: HTTP_PROXY, value: {{ . | quote }}}
{{- end }}
{{- with .Values.proxy.https }}
- {name: HTTPS_PROXY, value: {{ . | quote }}}
{{- end }}
{{- if or .Values.proxy.http .Values.proxy.https }}
- {name: NO_PROXY, value: {{ printf "%s,$(KUBERNETES_SERVICE_HOST)" .Values.proxy.exclude | trimPrefix "," | quote }}}
{{- end }}
{{- if .Values.caBundle.configMap }}
- {name: SSL_CERT_DIR, value: /etc/drover/ca}
{{- end }}
{{- end -}}

{{- define "drover.outside.mounts" -}}
{{- if .Values.caBundle.configMap }}
volumeMounts:
- {name: ca, mountPath: /etc/drover/ca, readOnly: true}
{{- end }}
{{- end -}}

{{- define "drover.outside.volumes" -}}
{{- if .Values.caBundle.configMap }}
volumes:
- name: ca
  configMap: {name: {{ .Values.caBundle.configMap }}}
{{- end }}
{{- end -}}

{{/* What all operators have in common: probes, and no privilege. */}}
{{- define "drover.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: probes}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: probes}
  periodSeconds: 20
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: probes}
  periodSeconds: 10
  timeoutSeconds: 5
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{- define "drover.unprivileged" -}}
runAsNonRoot: true
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* How many pods an eviction may take at once. Takes {name, namespace, settings}. */}}
{{- define "drover.budget" -}}
{{- if .settings.podDisruptionBudget.enabled }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels:
    app.kubernetes.io/part-of: drover
spec:
  maxUnavailable: {{ .settings.podDisruptionBudget.maxUnavailable }}
  selector:
    matchLabels:
      app.kubernetes.io/name: {{ .app | default .name }}
{{- end }}
{{- end -}}

{{/* Where a program sends its spans. */}}
{{- define "drover.tracing" -}}
{{- if .Values.tracing.endpoint -}}
- {{ printf "--tracing-endpoint=%s" .Values.tracing.endpoint | quote }}
- --tracing-sampling-rate-per-million={{ int .Values.tracing.samplingRatePerMillion }}
{{- end }}
{{- end -}}

{{/* Who reaches a pod: those that read metrics. The kubelet's probes come from the pod's own node, which no policy stops. Takes
{root, name, namespace}, and app for a device operator. */}}
{{- define "drover.network" -}}
{{- if .root.Values.networkPolicies.enabled }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels:
    {{- with .app }}
    app.kubernetes.io/name: {{ . }}
    {{- end }}
    app.kubernetes.io/part-of: drover
spec:
  podSelector:
    matchLabels:
      app.kubernetes.io/name: {{ .app | default .name }}
      {{- if .app }}
      app.kubernetes.io/part-of: drover
      control-plane: controller-manager
      {{- end }}
  policyTypes: [Ingress]
  ingress:
  - ports:
    - {port: metrics}
    {{- with .root.Values.networkPolicies.metricsFrom }}
    from: {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
{{- end -}}
