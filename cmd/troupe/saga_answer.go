package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/internal/plain"
	"github.com/troupe-go/troupe/saga"
)

func newSagaAnswer() *cobra.Command {
	a := &sagaAction{kind: saga.ActAnswer, asks: true}
	var fields []string
	cmd := a.command(&cobra.Command{
		Use:   "answer <saga> <step> <event>",
		Short: "Answer a question: give a step the event that it awaits",
		Long: `answer gives a step the event that it awaits, if the definition has a form for the event. The saga continues as if the
event had come from its hop. The event is not published: other services do not receive it. Set each field of the form with
--field name=value; you may leave out an optional field. troupe saga questions lists the steps that wait, with their events and fields.

Each step is answered once. A second answer, and an answer after the time-out, the cancel or the end, is refused and changes nothing.`,
		Example: `  troupe saga answer loan/l-1 approval LoanApproved --field cents=250000 --reason 'ticket 4711: the income is proven' --dry-run
  troupe saga answer loan/l-1 approval LoanDeclined --field why=income --reason 'ticket 4711: no income'`,
		Args: cobra.ExactArgs(3),
	}, "this is the answer")
	cmd.Flags().StringArrayVar(&fields, "field", nil, "`name=value` of a field of the form, repeatable")
	a.prepare = func(g *sagadesk.Detail, e *saga.Event, args []string) error {
		e.Type = args[2]
		texts := make(map[string]string)
		for _, one := range fields {
			name, value, ok := strings.Cut(one, "=")
			if _, twice := texts[name]; !ok || name == "" || twice {
				return fmt.Errorf("--field %s: want name=value, each field once", oneLine(one, 60))
			}
			texts[name] = value
		}
		forms := sagadesk.FormEvents(g.Definition, e.Step)
		if i := slices.IndexFunc(forms, func(f sagadesk.FormEvent) bool { return f.Event == e.Type }); i >= 0 {
			values, err := sagadesk.ReadFormValues(forms[i], texts)
			if err != nil {
				return fmt.Errorf("--field %w", err)
			}
			e.Fields = values
		} // else the decision refuses the event
		a.given = sagadesk.Given(g.Definition, *e)
		return nil
	}
	return cmd
}

func newSagaQuestions() *cobra.Command {
	var f sagaFlags
	var name string
	var page sagadesk.Page
	cmd := &cobra.Command{
		Use:   "questions",
		Short: "List the steps of sagas that wait for an operator's answer",
		Long: `questions lists the steps that await an event with a form, oldest saga first. SINCE is the time at which the step began.
UNTIL is the end of the time-out of the step or of the saga, whichever is earlier. The table has a line for each event that you may give, with
its fields and their types. You may leave out a field in brackets.`,
		Example: `  troupe saga questions
  troupe saga questions --saga loan --output json | jq -r '.questions[].id'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := page.Validate(); err != nil {
				return err
			}
			return withDesk(cmd, f.openSagas, func(desk *sagadesk.Desk) error {
				found, err := desk.Questions(cmd.Context(), name, page)
				if err != nil {
					return failed(err)
				}
				return f.printQuestions(cmd.OutOrStdout(), found)
			})
		},
	}
	flags := cmd.Flags()
	f.declare(cmd)
	flags.StringVar(&name, "saga", "", "only of this `type`")
	flags.IntVar(&page.Limit, "limit", 50, "questions of at most `n` sagas, up to 10000")
	flags.StringVar(&page.After, "after", "", "go on behind this `mark`, which the page before has printed")
	return cmd
}

func (f *sagaFlags) printQuestions(w io.Writer, found sagadesk.QuestionPage) error {
	if f.output.forPrograms() {
		found.Questions = orEmpty(found.Questions)
		return f.output.encode(w, found)
	}
	if found.LeftOut > 0 {
		_, _ = fmt.Fprintf(w, "Questions are missing here: %s of open sagas could not be read. troupe saga show prints the questions of a saga, or the reason.\n",
			counted(found.LeftOut, "definition", "definitions"))
	}
	if len(found.Questions) == 0 && found.Next == "" {
		_, err := fmt.Fprintln(w, "No step waits for an operator.")
		return err
	}
	t := newTable(w, "SAGA", "STEP", "SINCE", "UNTIL", "EVENT", "FIELDS")
	for _, q := range found.Questions {
		until := ""
		if q.Due != nil {
			until = stamp(*q.Due)
		}
		for _, e := range q.Events {
			t.row(oneLine(q.ID, 60), q.Step, stamp(q.Since), cmp.Or(until, "-"), oneLine(e.Event, 60), cmp.Or(oneLine(fieldsOf(e), 100), "-"))
		}
	}
	err := t.print(w)
	more(w, found.Next)
	return err
}

// fieldsOf returns the fields of a form with their types, on one line.
func fieldsOf(e sagadesk.FormEvent) string {
	all := make([]string, len(e.Fields))
	for i, one := range e.Fields {
		all[i] = one.Name + " " + string(one.Type)
		if len(one.OneOf) > 0 {
			all[i] = one.Name + " " + strings.Join(one.OneOf, "|")
		}
		if one.Optional {
			all[i] = "[" + all[i] + "]"
		}
	}
	return strings.Join(all, ", ")
}

// printQuestions prints the commands with which an operator can answer a saga's questions.
func printQuestions(w io.Writer, id string, questions []sagadesk.Question) {
	for i, q := range questions {
		if i == 0 {
			_, _ = fmt.Fprintln(w, "\nwaits for an operator (each with --reason; --dry-run says what would follow)")
		}
		for _, e := range q.Events {
			text := "troupe saga answer " + plain.Operand(id) + " " + plain.Operand(q.Step) + " " + plain.Operand(e.Event)
			for _, one := range e.Fields {
				if !one.Optional {
					text += " --field " + one.Name + "=" + strings.ToUpper(string(one.Type))
				}
			}
			_, _ = fmt.Fprintln(w, "  "+text)
		}
	}
}
