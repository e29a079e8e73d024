package console

// A shortcut is a single key with its effect. Those with a page open it; static/console.js has the others.
type shortcut struct{ Key, Does, To string }

// shortcuts are in the order of the help. A key has an effect only outside fields, without a modifier, and while a browser has not
// turned them off.
var shortcuts = []shortcut{
	{"/", "Find a key or an id", ""},
	{"j", "Next line of the lists", ""},
	{"k", "Previous line of the lists", ""},
	{"o", "Overview", "/"},
	{"s", "Sagas", "/sagas"},
	{"p", "Parked sagas, the oldest first", "/sagas?oldest=1&status=parked"},
	{"f", "Flows", "/flows"},
	{"d", "Dead letters", "/dead-letters"},
	{"h", "Held keys", "/held"},
	{"e", "Expectations", "/expectations"},
	{"m", "Messages", "/messages"},
	{"r", "Relay", "/relay"},
	{"a", "Actions of operators", "/actions"},
	{"?", "This help", ""},
}
