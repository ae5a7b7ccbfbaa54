// Fetches this page again at each tick and changes what differs, so that focus, input and scroll position stay. The server
// draws everything and escapes all text; without this script the page is the same and links load it again.
"use strict";

const $ = (id) => document.getElementById(id);
let interval = 1000;
let timer = null;
let nr_fetches = 0;

// Makes `from` like `to`. Elements with an id are the same element before and after, wherever they are.
function morph(from, to) {
  if (from.isEqualNode(to)) return;
  for (const { name } of [...from.attributes]) if (!to.hasAttribute(name)) from.removeAttribute(name);
  for (const { name, value } of to.attributes) if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  const known = new Map([...from.children].filter((child) => child.id).map((child) => [child.id, child]));
  let at = from.firstChild;
  for (const next of [...to.childNodes]) {
    const isAlike = at && !at.id && !next.id && at.nodeName === next.nodeName;
    const same = next.id ? known.get(next.id) : isAlike ? at : undefined;
    if (same === undefined) {
      from.insertBefore(next, at);
      continue;
    }
    if (same === at) at = at.nextSibling;
    else from.insertBefore(same, at);
    if (same.nodeType === Node.ELEMENT_NODE) morph(same, next);
    else if (same.data !== next.data) same.data = next.data;
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

function away(why) {
  document.body.classList.add("stale");
  $("age").textContent = "no answer";
  if ($("away").textContent !== why) $("away").textContent = why;
  $("away").hidden = false;
}

async function refresh() {
  clearTimeout(timer);
  nr_fetches += 1;
  const nr = nr_fetches;
  try {
    const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(5000) });
    const next = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (nr !== nr_fetches) return; // A newer address is on its way.
    const has_tenants = document.querySelector("table.tenants") !== null;
    const why = next.getElementById("why");
    // What was last known stays in sight while the daemon is away.
    if (why && has_tenants) away(why.textContent);
    else draw(next);
  } catch {
    if (nr !== nr_fetches) return;
    away("The server of this page does not answer: see systemctl status tenantd-serve.");
  }
  timer = setTimeout(live, interval);
}

function draw(next) {
  const focused = document.activeElement;
  document.body.className = next.body.className;
  $("away").hidden = true;
  interval = 1000 * Math.max(1, Math.min(60, Number(next.body.dataset.interval) || 1));
  for (const part of ["header", "main", "footer"]) morph(document.querySelector(part), next.querySelector(part));
  // Moving an element takes the focus from it.
  if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
}

function live() {
  if (document.hidden) timer = setTimeout(live, interval);
  else refresh();
}

// Shows the present address; the form has its choices.
async function show() {
  await refresh();
  if ($("choice")) $("choice").reset();
}

async function go(address) {
  history.pushState(null, "", address);
  await show();
}

// The address with the choices of the form, without those that are empty.
function chosen() {
  const parts = [...new FormData($("choice"))].filter(([, value]) => value !== "");
  return "./?" + new URLSearchParams(parts);
}

async function open_or_close(link) {
  const opened = new URL(link.href).searchParams.get("tenant");
  await go(link.href);
  if (opened !== null && $("opened")) $("opened").focus();
}

async function close_opened() {
  const closing = $("close");
  const row = closing.closest("tbody").querySelector("th a");
  await go(closing.href);
  if (row.isConnected) row.focus();
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("main a");
  const is_plain = !(event.ctrlKey || event.metaKey || event.shiftKey || event.altKey);
  // A click anywhere in the row of a tenant is one on its name.
  const row = event.target.closest(".tenants .row, .tenants .why");
  const target = link || (row && !getSelection().toString() && row.parentElement.querySelector("th a"));
  if (!target || !is_plain || target.origin !== location.origin) return;
  event.preventDefault();
  if (target.id === "close") close_opened();
  else open_or_close(target);
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.target.closest("input, select")) return;
  if (event.target.matches(".tip")) event.target.blur();
  else if ($("close")) close_opened();
});
document.addEventListener("input", (event) => {
  if (!event.target.closest("#choice")) return;
  history.replaceState(null, "", chosen());
  refresh();
});
document.addEventListener("submit", (event) => event.preventDefault());
window.addEventListener("popstate", show);
document.addEventListener("visibilitychange", () => document.hidden || refresh());
timer = setTimeout(live, interval);
