{{/* Every object has the release's name. */}}
{{- define "relay.selector" -}}
app.kubernetes.io/name: outbox-relay
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "relay.metadata" -}}
name: {{ .Release.Name }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "relay.selector" . | nindent 2 }}
{{- end }}

{{- define "relay.image" -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default (print "v" .Chart.AppVersion) }}{{ end }}
{{- end }}

{{- define "relay.port" -}}
{{ .Values.config.admin | splitList ":" | last }}
{{- end }}
