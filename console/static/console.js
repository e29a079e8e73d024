// Everything works without this file. With it times are in the reader's zone, and a page that is open follows its facts.
"use strict";

function localTimes(root) {
  for (const t of root.querySelectorAll("time[datetime]")) {
    const at = new Date(t.dateTime);
    if (isNaN(at)) continue;
    const pad = (n) => String(n).padStart(2, "0");
    t.textContent = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ` +
      `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
  }
}

let stream;

function follow() {
  if (stream) stream.close();
  const main = document.getElementById("main");
  if (!main.dataset.live || !window.EventSource) return;
  stream = new EventSource(main.dataset.live);
  stream.addEventListener("changed", refresh);
}

// busy says that somebody is in the middle of something that a new page would take from him.
function busy(main) {
  const at = document.activeElement;
  return main.contains(at) && at.matches("input, select, textarea") || String(window.getSelection()) !== "" ||
    main.querySelector("textarea") !== null;
}

async function refresh() {
  const main = document.getElementById("main");
  if (busy(main)) {
    if (!main.querySelector(".stale")) {
      const note = document.createElement("p");
      note.className = "message stale";
      note.setAttribute("role", "status");
      note.textContent = "This page has changed meanwhile. ";
      const again = document.createElement("a");
      again.href = location.href;
      again.textContent = "Show it anew";
      note.append(again);
      main.prepend(note);
    }
    return;
  }
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    const next = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("main");
    if (!next) return;
    const open = [...main.querySelectorAll("details")].map((d) => d.open);
    next.querySelectorAll("details").forEach((d, i) => { d.open = open[i] || false; });
    const focused = document.activeElement && main.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    main.replaceWith(next);
    localTimes(next);
    if (focused) {
      for (const a of next.querySelectorAll("a[href]")) if (a.getAttribute("href") === focused) { a.focus({ preventScroll: true }); break; }
    }
    follow();
  } catch { /* the stream asks again */ }
}

localTimes(document);
follow();
