// Everything works without this file. With it, an open page follows its facts, and says so when it cannot.
"use strict";

let stream, asOf = new Date(document.getElementById("main").dataset.at), retry;

// ago returns how long ago a time was, as the server writes it (short in overview.go).
function ago(at, now) {
  const s = Math.abs(now - at) / 1000;
  const text = s < 120 ? `${Math.floor(s)} s` : s < 7200 ? `${Math.floor(s / 60)} min` : s < 172800 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86400)} days`;
  return at > now ? `in ${text}` : `${text} ago`;
}

function utc(at) { return `${at.toISOString().slice(0, 19).replace("T", " ")} UTC`; }

function tick() {
  const now = new Date();
  for (const t of document.querySelectorAll("time[datetime]")) {
    const text = t.querySelector(".ago");
    if (text) text.textContent = ago(new Date(t.dateTime), now);
  }
}

// note shows a message above the page; "" removes it. The message of a lost connection and the one of a change have a kind each.
function note(kind, text, link) {
  const main = document.getElementById("main");
  let p = main.querySelector(`[data-note="${kind}"]`);
  if (!text) { if (p) p.remove(); return; }
  if (!p) {
    p = document.createElement("p");
    p.className = "message stale";
    p.dataset.note = kind;
    p.setAttribute("role", "status");
    main.prepend(p);
  }
  if (p.dataset.text === text) return;
  p.dataset.text = text;
  p.textContent = text + " ";
  if (link) {
    const again = document.createElement("a");
    again.href = location.href;
    again.textContent = link;
    p.append(again);
  }
}

function lost(why) { note("lost", `${why}. This page shows the state as of ${utc(asOf)}.`, "Try again"); }

function seen() {
  asOf = new Date();
  note("lost", "");
  const text = document.querySelector(".foot > span");
  if (text) text.firstChild.data = `As of ${utc(asOf)}`;
}

const old = 60000; // ms after which a page that does not follow its facts says so

// age says how old a page is that nothing updates. A page that follows its facts has the connection for that.
function age() {
  const main = document.getElementById("main");
  if (main.dataset.live && window.EventSource || Date.now() - asOf < old) return;
  note("old", `This page does not follow changes: it shows the state as of ${utc(asOf)}.`, "Show the present state");
}

const silence = 45000; // ms without an event: the server writes one every few seconds

function follow() {
  clearTimeout(retry);
  if (stream) stream.close();
  stream = undefined;
  const main = document.getElementById("main");
  if (!main.dataset.live || !window.EventSource || document.hidden) return;
  const own = stream = new EventSource(main.dataset.live);
  let heard = Date.now();
  own.addEventListener("same", () => { heard = Date.now(); seen(); });
  own.addEventListener("changed", () => { heard = Date.now(); refresh(); });
  own.addEventListener("error", () => {
    if (own !== stream) return;
    lost("Connection lost");
    if (own.readyState === EventSource.CLOSED) retry = setTimeout(follow, 10000); // the browser does not try again by itself
  });
  const watch = setInterval(() => {
    if (own !== stream) { clearInterval(watch); return; }
    if (Date.now() - heard > silence) { clearInterval(watch); lost("Connection lost"); follow(); }
  }, 5000);
}

// busy reports whether a new page would take something from the reader: a field, a selection.
function busy(main) {
  const at = document.activeElement;
  return main.contains(at) && at.matches("input, select, textarea") || String(window.getSelection()) !== "" ||
    main.querySelector("textarea") !== null;
}

async function refresh() {
  const main = document.getElementById("main");
  if (busy(main)) {
    note("changed", "This page has changed meanwhile.", "Show the new state");
    return;
  }
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (answer.status >= 500 || answer.status === 429) { lost(`The server answers with status ${answer.status}`); return; }
    const next = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("main");
    if (!next) return;
    const open = [...main.querySelectorAll("details")].map((d) => d.open);
    next.querySelectorAll("details").forEach((d, i) => { d.open = open[i] || false; });
    const focused = document.activeElement && main.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    main.replaceWith(next);
    if (focused) {
      for (const a of next.querySelectorAll("a[href]")) if (a.getAttribute("href") === focused) { a.focus({ preventScroll: true }); break; }
    }
    seen();
    follow();
  } catch { lost("Connection lost"); }
}

document.addEventListener("visibilitychange", follow); // a hidden page needs no stream
setInterval(() => { tick(); age(); }, 10000);
for (const s of document.querySelectorAll(".follows")) s.hidden = !window.EventSource;
follow();

const keys = document.getElementById("keys"), off = document.getElementById("keys-off"), opener = document.getElementById("keys-open");

// stored reads or writes the choice of this browser; without storage the choice lasts as long as the page.
function stored(value) {
  try {
    if (value === undefined) return localStorage.getItem("troupe-keys") === "off";
    localStorage.setItem("troupe-keys", value ? "off" : "on");
  } catch { /* the browser keeps nothing */ }
  return value || false;
}

// step moves the focus to the first link of another line of the lists.
function step(by) {
  const links = [...document.querySelectorAll("main .needs .about, main table.list tbody tr")].map((e) => e.matches("a") ? e : e.querySelector("a[href]")).filter(Boolean);
  const at = links.findIndex((a) => a === document.activeElement || a.closest("tr, li").contains(document.activeElement));
  const next = links[at < 0 ? (by > 0 ? 0 : links.length - 1) : at + by];
  if (next) next.focus();
}

function key(e) {
  if (off.checked || e.ctrlKey || e.altKey || e.metaKey || e.isComposing || e.defaultPrevented || keys.open) return;
  if (e.target.closest("input, select, textarea, [contenteditable]")) return;
  const found = [...keys.querySelectorAll("[data-key]")].find((d) => d.dataset.key === e.key);
  if (!found) return;
  if (e.key === "/" && !document.getElementById("find")) return;
  e.preventDefault();
  if (found.dataset.to) location.href = found.dataset.to;
  else if (e.key === "?") keys.showModal();
  else if (e.key === "/") document.getElementById("find").focus();
  else step(e.key === "j" ? 1 : -1);
}

if (keys && keys.showModal) {
  off.checked = stored();
  off.addEventListener("change", () => stored(off.checked));
  opener.hidden = false;
  opener.addEventListener("click", () => keys.showModal());
  document.addEventListener("keydown", key);
}
