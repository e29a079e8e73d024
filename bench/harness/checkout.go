package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const module = "github.com/troupe-go/troupe"

// Checkout returns the folder of Troupe's own module, which these benchmarks measure and which is another module than theirs.
func Checkout(ctx context.Context) (string, error) {
	return output(ctx, "list", "-m", "-f", "{{.Dir}}", module)
}

// Build builds a command of Troupe, such as cmd/troupe, to the file program.
func Build(ctx context.Context, command, program string) error {
	folder, err := Checkout(ctx)
	if err != nil {
		return err
	}
	if program, err = filepath.Abs(program); err != nil { // go -C changes the folder that it is relative to
		return err
	}
	_, err = output(ctx, "-C", folder, "build", "-o", program, "./"+command)
	return err
}

func output(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(text)), nil
}
