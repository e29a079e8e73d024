package sidecar

import (
	"context"
	"os"

	"github.com/spf13/cobra"
)

// ambassadorAddresses reads the settings that the ambassador reads again at SIGHUP.
func (p Program) ambassadorAddresses(cmd *cobra.Command) (values, error) {
	l, err := p.loadFile(cmd, ambassadorProgram, ambassadorSettings)
	if err != nil {
		return values{}, err
	}
	return l.process(registry, tellURL)
}

// follow reads the addresses again at each hang-up, until ctx ends.
func (a *ambassadorPlan) follow(ctx context.Context, hangup <-chan os.Signal) {
	log := a.participant.Log
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
		}
		if err := a.reload(); err != nil {
			log.Error().Err(err).Msg("reload: refused; everything stays as it was")
			continue
		}
		log.Info().Msg("reload: done: the addresses of the schema registry and of the webhook; other settings need a restart")
	}
}

// reload replaces both addresses, or none. Its error contains no secret.
func (a *ambassadorPlan) reload() error {
	v, err := a.again()
	if err != nil {
		return err
	}
	a.reloads.Lock()
	defer a.reloads.Unlock()
	at, next := v.text[registry.name], a.alert
	next.URL = v.text[tellURL.name]
	switch {
	case (at == "") != (a.registry == nil):
		return usagef("%s: it cannot be added or removed without a restart", registry.name)
	case (next.URL == "") != (a.alert.URL == ""):
		return usagef("%s: it cannot be added or removed without a restart", tellURL.name)
	}
	if err := next.Validate(); err != nil {
		return usagef("%s (from %s): %w", tellURL.name, v.from[tellURL.name], err)
	}
	if a.registry != nil {
		if err := a.registry.Replace(at); err != nil {
			return usagef("%s (from %s): %w", registry.name, v.from[registry.name], err)
		}
	}
	a.alert = next
	if a.alerts == nil {
		return nil
	}
	return a.alerts.Replace(next.URL)
}
