package console

import (
	"context"
	"slices"
	"strings"
)

// A page is one address. Its facts are its JSON, and the data of its template.
type page struct {
	path     string
	title    string
	template string
	nav      string // the entry of the navigation that it belongs to
	live     bool   // the browser reloads it when its facts change
	payloads bool   // its facts hold whole payloads, or all variables of a saga
	needs    Role   // to read the page; NoRole: Viewer
	flow     bool   // its facts belong to no single database, so that the user needs the role on all of them
	takes    string // the names of the parameters of its address, separated by blanks
	does     string // the fields of its form, other than actor and reason
	read     func(context.Context, *ask) (any, error)
	// operator and admin have the values that its form's do may have, separated by blanks, by the role that each needs. Others are
	// refused.
	operator, admin string
	adminFields     string // the fields that need an Admin, whichever the action, separated by blanks
	// act handles a POST: it returns the JSON response, and the address that a browser is redirected to.
	act func(context.Context, *ask) (done any, next string, err error)
}

// role returns the role for reading the page.
func (p *page) role() Role {
	if p.payloads {
		return max(p.needs, Operator)
	}
	return max(p.needs, Viewer)
}

// actions returns the actions of the page's form.
func (p *page) actions() []string {
	return append(strings.Fields(p.operator), strings.Fields(p.admin)...)
}

// roleOf returns the role for one of the actions; false if the page has no such action.
func (p *page) roleOf(do string) (Role, bool) {
	switch {
	case slices.Contains(strings.Fields(p.operator), do):
		return Operator, true
	case slices.Contains(strings.Fields(p.admin), do):
		return Admin, true
	}
	return NoRole, false
}

// pages has every page and every action, with its role. A page with payloads or with a saga's variables needs an Operator, and so
// do previews of actions.
var pages = []page{
	{
		path: "/", title: "Overview", template: "overview", nav: "/", live: true, read: readOverview,
		takes: "window",
	},
	{
		path: "/sagas", title: "Sagas", template: "sagas", nav: "/sagas", live: true, read: readSagas,
		takes: "db saga status key step definition variable value since before still oldest limit after",
	},
	{
		path: "/saga", title: "Saga", template: "saga", nav: "/sagas", live: true, payloads: true, needs: Operator, read: readSaga,
		takes: "db id",
	},
	{
		path: "/saga/act", title: "Saga", template: "saga-act", nav: "/sagas", payloads: true, needs: Operator, read: readSagaAct,
		takes: "db id do step happened result",
		act:   actOnSaga, does: "db id do step happened result state_hash",
		operator: "retry resolve compensate cancel resume", admin: "skip set abandon", adminFields: "result",
	},
	{
		path: "/questions", title: "Waiting for an operator", template: "questions", nav: "/sagas", live: true, read: readQuestions,
		takes: "db saga limit after",
	},
	{
		path: "/saga/answer", title: "Answer", template: "saga-answer", nav: "/sagas", payloads: true, needs: Operator, read: readAnswer,
		takes: "db id step",
		act:   actOnAnswer, does: "db id step event values do state_hash",
		operator: "preview answer",
	},
	{
		path: "/sagas/retry", title: "Retry sagas", template: "sagas-retry", nav: "/sagas", needs: Operator, read: readRetry,
		takes: "db saga",
		act:   actOnRetry, does: "db saga do rate count",
		operator: "retry",
	},
	{
		path: "/saga/fixture", title: "Saga", template: "saga-fixture", nav: "/sagas", payloads: true, needs: Operator, read: readFixture,
		takes: "db id",
	},
	{
		path: "/flows", title: "Flows", template: "flows", nav: "/flows", live: true, flow: true, read: readFlows,
		takes: "flow status found key since before limit after",
	},
	{
		path: "/flow", title: "Flow", template: "flow", nav: "/flows", live: true, flow: true, read: readFlow,
		takes: "flow id",
	},
	{
		path: "/dead-letters", title: "Dead letters", template: "dead-letters", nav: "/dead-letters", live: true, read: readCauses,
		takes: "db cause group class handler type key topic hop since before status limit after",
	},
	{
		path: "/dead-letters/list", title: "Dead letters", template: "dead-letters-list", nav: "/dead-letters", live: true, read: readLetters,
		takes: "db cause group class handler type key topic hop since before status limit after",
	},
	{
		path: "/dead-letters/act", title: "Dead letters", template: "dead-letters-act", nav: "/dead-letters", needs: Operator, read: readGroup,
		takes: "db do cause group class handler type key topic hop since before all",
		act:   actOnGroup, does: "db do cause group class handler type key topic hop since before all rate count",
		operator: "redrive", admin: "discard",
	},
	{
		path: "/dead-letter", title: "Dead letter", template: "dead-letter", nav: "/dead-letters", live: true, payloads: true, needs: Operator, read: readLetter,
		takes: "db id",
		act:   actOnLetter, does: "db id do payload same_key",
		operator: "redrive", admin: "edit discard",
	},
	{
		path: "/work", title: "Work", template: "work", nav: "/dead-letters", live: true, read: readWork,
		takes: "id db actor since",
		act:   actOnWork, does: "id do",
		operator: "stop",
	},
	{
		path: "/held", title: "Held keys", template: "held", nav: "/held", live: true, read: readHeld,
		takes: "db group class key topic limit after",
	},
	{
		path: "/held/key", title: "Held key", template: "held-key", nav: "/held", live: true, read: readHeldKey,
		takes: "db place group",
		act:   actOnHeld, does: "db place group class key topic all do hop",
		operator: "retry", admin: "dead-letter",
	},
	{
		path: "/expectations", title: "Expectations", template: "expectations", nav: "/expectations", live: true, read: readExpectations,
		takes: "db status group name key limit after",
	},
	{
		path: "/schedules", title: "Schedules", template: "schedules", nav: "/schedules", live: true, read: readSchedules,
		takes: "db",
	},
	{
		path: "/rebuilds", title: "Rebuilds", template: "rebuilds", nav: "/rebuilds", live: true, read: readRebuilds,
		takes: "db",
	},
	{
		path: "/messages", title: "Messages", template: "messages", nav: "/messages", payloads: true, needs: Operator, read: readMessages,
		takes: "q since scan-all",
	},
	{
		path: "/relay", title: "Relay", template: "relay", nav: "/relay", live: true, read: readRelay,
	},
	{
		path: "/relay/rows", title: "Failed rows", template: "relay-rows", nav: "/relay", live: true, read: readFailedRows,
		takes: "db table status topic limit after",
	},
	{
		path: "/relay/row", title: "Failed row", template: "relay-row", nav: "/relay", live: true, payloads: true, needs: Operator, read: readFailedRow,
		takes: "db table id topic",
		act:   actOnFailedRow, does: "db table id topic do",
		operator: "retry", admin: "discard",
	},
	{
		path: "/relay/act", title: "Relay", template: "relay-act", nav: "/relay", needs: Operator, read: readRelayAct,
		takes: "db table topic do",
		act:   actOnRelay, does: "db table topic do count",
		operator: "retry pause resume", admin: "discard",
	},
	{
		path: "/actions", title: "Actions", template: "actions", nav: "/actions", live: true, read: readActions,
		takes: "db actor since before limit after",
	},
	{
		path: "/definitions", title: "Definitions", template: "definitions", nav: "/definitions", read: readDefinitions,
	},
	{
		path: "/definition", title: "Definition", template: "definition", nav: "/definitions", read: readDefinition,
		takes: "db hash against",
	},
	{
		path: "/definition/start", title: "Start a saga", template: "definition-start", nav: "/definitions", needs: Operator, read: readStart,
		takes: "db hash key input hop group avro",
		act:   actOnStart, does: "db hash key input hop group avro do",
		admin: "start",
	},
	{
		path: "/definition/move", title: "Move sagas", template: "definition-move", nav: "/definitions", needs: Operator, read: readMove,
		takes: "db from to",
		act:   actOnMove, does: "db from to do",
		admin: "migrate",
	},
}
