package console

// A shortcut is a single key with its effect. It opens Page; without a Page, static/console.js has its effect.
type shortcut struct{ Key, Effect, Page string }

// shortcuts are in the order of the help. A key has an effect only outside fields, without a modifier, and unless the user has turned
// shortcuts off in this browser.
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
