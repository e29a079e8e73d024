package sidecar

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

const healthLimit = 3 * time.Second

func (p Program) healthCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Check whether a running relay is ready",
		Long: `healthcheck requests /readyz of the relay at --admin: exit status 0 if it is ready, else 1. It is for
containers without a shell and curl.`,
		Example: `  outbox-relay healthcheck
  HEALTHCHECK CMD ["/app", "healthcheck"]`,
		Args: noArguments,
	}
	declare(cmd, adminAddress, adminToken)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		l, err := p.load(cmd)
		if err != nil {
			return err
		}
		v, err := l.process(adminAddress, adminToken)
		if err != nil {
			return err
		}
		address, err := v.address(adminAddress)
		if err != nil {
			return err
		}
		return ask(cmd.Context(), address, v.text[adminToken.name])
	}
	return cmd
}

func ask(ctx context.Context, address, token string) error {
	ctx, cancel := context.WithTimeout(ctx, healthLimit)
	defer cancel()
	if host, port, err := net.SplitHostPort(address); err == nil {
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			address = net.JoinHostPort("127.0.0.1", port) // reaches a relay that listens on all addresses
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", nil)
	if err != nil {
		return err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // without a proxy
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	var h health
	if err := json.NewDecoder(resp.Body).Decode(&h); err != nil {
		return fmt.Errorf("%s: status %d", address, resp.StatusCode)
	}
	return fmt.Errorf("%s: not ready: %s", address, h.Reason)
}
