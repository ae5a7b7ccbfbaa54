// The status page: fetches status.json once an interval and draws it. Text becomes text nodes only, so that no name
// or finding can become markup. The thresholds for colours and staleness come with the status.
"use strict";

const TENANTS_MAX = 200;
const HISTORY_MAX = 60;
// Distinguishable with red-green colour blindness (after Okabe and Ito); dark text is readable on each.
const HUES = ["#56b4e9", "#e69f00", "#3fbf8f", "#f0e442", "#d98cc0", "#e8845c", "#a9b4c2", "#8fb8ff"];

// Faults shown to the user, as phrases about the tenant.
const FAULTS = [
  ["cpu_starved", "starved"],
  ["cpu_throttled", "throttled"],
  ["memory_reclaimed", "reclaimed below its protection"],
];

const $ = (id) => document.getElementById(id);
const rows = new Map(); // The elements of each tenant, reused so that focus and transitions survive a tick.
const history = new Map(); // The recent usages of each tenant, the newest last.
let last = null; // The last status, and when its tick arrived: a daemon may answer while its ticks do not come.
let lastAt = 0;
let drawnTick = null;

function element(tag, classes, text) {
  const made = document.createElement(tag);
  if (classes) made.className = classes;
  if (text !== undefined) made.textContent = text;
  return made;
}

// Writes only changes: a screen reader announces every write.
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const known = (value) => value !== null && value !== undefined;
const cores = (value) => (known(value) ? value.toFixed(2) : "–");
const percent = (value) => (known(value) ? (value * 100).toFixed(value < 0.0995 ? 1 : 0) + " %" : "–");

function bytes(value) {
  if (!known(value)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1023.5 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return value.toFixed(value < 10 && unit > 0 ? 1 : 0) + " " + units[unit];
}

function seconds(value) {
  if (!known(value)) return "–";
  if (value < 0.0995) return (value * 1000).toFixed(1) + " ms";
  if (value < 120) return value.toFixed(value < 10 ? 1 : 0) + " s";
  return (value / 60).toFixed(0) + " min";
}

// "0-3,8" as numbers; at most `max` of them.
function cpuList(text, max) {
  const found = [];
  for (const part of (text || "").split(",")) {
    const ends = part.split("-").map(Number);
    if (part === "" || ends.some(Number.isNaN)) continue;
    for (let cpu = ends[0]; cpu <= ends[ends.length - 1] && found.length < max; cpu += 1) found.push(cpu);
  }
  return found;
}

// The thresholds of the status; those of an older daemon that does not send them.
const thresholds = () => ({ share_error_ratio: 0.05, pressure_ratio: 0.2, stale_seconds: 3, ...(last && last.thresholds) });
const reasons = (tenant) => tenant.reasons || []; // An older daemon gives none.
const isUnfair = (tenant) => known(tenant.share_error) && tenant.share_error > thresholds().share_error_ratio;
const lacks = (tenant) => isUnfair(tenant) || reasons(tenant).length > 0;
// Missing CPUs, of its due amount or of its entitlement.
const missing = (tenant, host) => Math.max(tenant.missing_cores || 0, (tenant.share_error || 0) * host.capacity_cores);

const hasJobs = (jobs) => known(jobs) && jobs.nr_running + jobs.nr_waiting + jobs.nr_lingering > 0;

function jobsInWords(jobs) {
  const wide = known(jobs.dop) && jobs.nr_running > 0 ? ` ${jobs.dop} wide` : "";
  const words = [`${jobs.nr_running} run${wide}`, `${jobs.nr_waiting} wait`];
  if (jobs.nr_lingering > 0) words.push(`${jobs.nr_lingering} left daemons`);
  return words.join(", ");
}

// The tenants with their groups: in the order of the policy each group before its first tenant.
function withGroups(status) {
  const groups = [...(status.groups || [])];
  const all = [];
  for (const tenant of status.tenants) {
    while (groups.length > 0 && tenant.name.startsWith(groups[0].name + "/")) all.push(groups.shift());
    all.push(tenant);
  }
  return all;
}

function sorted(tenants) {
  const key = $("sort").value;
  const by = {
    name: (a, b) => a.name.localeCompare(b.name),
    cpu: (a, b) => (b.usage_cores || 0) - (a.usage_cores || 0),
    memory: (a, b) => (b.usage_memory_bytes || 0) - (a.usage_memory_bytes || 0),
    error: (a, b) => (b.share_error || 0) - (a.share_error || 0),
    pressure: (a, b) => (b.cpu_pressure_ratio || 0) - (a.cpu_pressure_ratio || 0),
  }[key];
  return by ? [...tenants].sort(by) : tenants;
}

// --- one tenant ---

function resource(title) {
  const box = element("div", "resource");
  const words = element("div", "words");
  const figures = element("span");
  words.append(element("span", "", title), figures);
  const bar = element("div", "bar");
  bar.setAttribute("role", "img");
  const parts = ["wants", "used", "entitled"].map((name) => element("i", name));
  bar.append(...parts);
  box.append(words, bar);
  return { box, figures, bar, wants: parts[0], used: parts[1], entitled: parts[2] };
}

function draw(part, name, used, wants, entitled, ifBusy, capacity, show) {
  const width = (value) => (capacity > 0 ? Math.min(100, Math.max(0, ((value || 0) / capacity) * 100)) : 0);
  part.used.style.width = width(used) + "%";
  part.wants.style.width = width(wants) + "%";
  part.entitled.style.left = `calc(${width(entitled)}% - 1.5px)`;
  const busy = known(ifBusy) ? `, if busy ${show(ifBusy)}` : ""; // An older daemon gives no memory.
  setText(part.figures, `${show(used)}; share now ${show(entitled)}${busy}`);
  const label = `${name}: uses ${show(used)}, wants ${show(wants)}, share now ${show(entitled)}${busy}`;
  if (part.bar.getAttribute("aria-label") !== label) part.bar.setAttribute("aria-label", label);
}

function sparkline() {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "spark");
  svg.setAttribute("viewBox", `0 0 ${HISTORY_MAX - 1} 10`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  svg.append(path);
  return { svg, path };
}

function row(tenant) {
  const item = element("li");
  const name = element("div", "name");
  const title = element("h3");
  const swatch = element("span", "swatch");
  title.append(swatch, document.createTextNode(tenant.name));
  const facts = element("span", "quiet");
  const why = element("span", "quiet why");
  name.append(title, facts, why);
  const cpu = resource("CPUs");
  const memory = resource("Memory");
  const waits = element("div", "waits");
  const told = element("div");
  const [cpuWaits, memoryWaits] = [element("b"), element("b")];
  told.append("waits for CPU ", cpuWaits, ", memory ", memoryWaits);
  const line = sparkline();
  waits.append(told, line.svg);
  item.append(name, cpu.box, memory.box, waits);
  return { item, swatch, facts, why, cpu, memory, told, cpuWaits, memoryWaits, path: line.path };
}

function drawTenant(tenant, index, host) {
  let kept = rows.get(tenant.name);
  if (!kept) {
    kept = row(tenant);
    rows.set(tenant.name, kept);
  }
  const isGroup = known(tenant.nr_tenants);
  kept.item.classList.toggle("group", isGroup);
  kept.swatch.style.background = isGroup ? "transparent" : HUES[index % HUES.length];
  const facts = [`weight ${+tenant.weight.toFixed(3)}`];
  if (isGroup) facts.push(tenant.nr_tenants === 1 ? "group of 1 tenant" : `group of ${tenant.nr_tenants} tenants`);
  if (known(tenant.dop)) facts.push(`DOP ${tenant.dop}`);
  if (known(tenant.dominant_resource)) {
    facts.push(`${percent(tenant.dominant_share)} of ${tenant.dominant_resource === "cpu" ? "CPU" : "memory"}`);
  }
  if (known(tenant.nr_oom_kills) && tenant.nr_oom_kills > 0) facts.push(`${tenant.nr_oom_kills} OOM kills`);
  const faults = tenant.faults || {};
  for (const [key, words] of FAULTS) {
    const fault = faults[key];
    if (known(fault) && fault.count > 0) facts.push(`${words} ${fault.count === 1 ? "once" : fault.count + " times"}, ${seconds(fault.seconds)}`);
  }
  if (known(tenant.nr_refused_forks) && tenant.nr_refused_forks > 0) facts.push(`${tenant.nr_refused_forks} refused forks`);
  if (known(tenant.credit_seconds) && (tenant.credit_seconds >= 1 || tenant.credit_factor > 1)) {
    const factor = tenant.credit_factor > 1 ? `, weight × ${tenant.credit_factor.toFixed(1)}` : "";
    facts.push(`credit ${seconds(tenant.credit_seconds)}${factor}`);
  }
  if (hasJobs(tenant.jobs)) facts.push(`jobs: ${jobsInWords(tenant.jobs)}`);
  const limits = [];
  if (known(tenant.limit_cores)) limits.push(`${cores(tenant.limit_cores)} CPUs`);
  if (known(tenant.limit_memory_bytes)) limits.push(bytes(tenant.limit_memory_bytes));
  if (known(tenant.limit_pids)) limits.push(`${known(tenant.usage_pids) ? tenant.usage_pids + " of " : ""}${tenant.limit_pids} processes`);
  if (limits.length > 0) facts.push(`limit ${limits.join(", ")}`);
  setText(kept.facts, facts.join(" · "));
  const why = reasons(tenant).map((reason) => reason.text);
  if (known(tenant.jobs) && known(tenant.jobs.reason)) {
    why.push(`its next job waits since ${seconds(tenant.jobs.longest_wait_seconds)}: ${tenant.jobs.reason}`);
  }
  setText(kept.why, why.join("; "));
  draw(kept.cpu, "CPUs", tenant.usage_cores, tenant.demand_cores, tenant.allocation_cores, tenant.fair_share_cores, host.capacity_cores, cores);
  draw(
    kept.memory, "Memory", tenant.usage_memory_bytes, tenant.demand_memory_bytes,
    tenant.allocation_memory_bytes, tenant.fair_share_memory_bytes, host.capacity_memory_bytes, bytes,
  );
  // Waits are measured per tenant, not per group.
  kept.told.hidden = isGroup;
  for (const [node, ratio] of [
    [kept.cpuWaits, tenant.cpu_pressure_ratio],
    [kept.memoryWaits, tenant.memory_pressure_ratio],
  ]) {
    setText(node, percent(ratio));
    node.classList.toggle("bad", known(ratio) && ratio > thresholds().pressure_ratio);
  }
  kept.item.classList.toggle("lacks", lacks(tenant));
  const points = history.get(tenant.name) || [];
  const top = Math.max(host.capacity_cores, 0.001);
  const steps = points.map((value, at) => {
    const x = HISTORY_MAX - points.length + at;
    return known(value) ? `${x},${(9.5 - Math.min(1, value / top) * 9).toFixed(2)}` : null;
  });
  let path = "";
  let drawing = false;
  for (const step of steps) {
    if (step) path += (drawing ? "L" : "M") + step;
    drawing = step !== null;
  }
  kept.path.setAttribute("d", path);
  return kept.item;
}

// --- the sections ---

function drawVerdict(status) {
  const most = (tenant) => missing(tenant, status.host);
  const lacking = status.tenants.filter(lacks).sort((a, b) => most(b) - most(a));
  const verdict = $("verdict");
  let text = "Every tenant gets its share, or does not want it.";
  if (status.tenants.length === 0) text = "There are no tenants.";
  else if (!known(status.max_share_error)) text = "There is no measurement yet.";
  else if (lacking.length > 0) {
    const worst = lacking[0];
    text = most(worst) > 0 ? `${worst.name} lacks ${cores(most(worst))} CPUs of its share` : `${worst.name} is held back`;
    if (reasons(worst).length > 0) text += `: ${reasons(worst)[0].text}`;
    text += lacking.length > 1 ? `. ${lacking.length - 1} more lack something.` : ".";
  }
  if (status.mode === "observe") text += " Nothing is enforced: tenantd only observes.";
  verdict.className = "verdict " + (lacking.length > 0 ? "bad" : "good");
  setText(verdict, text);
}

function drawFigures(status) {
  const starved = status.tenants.reduce((most, tenant) => Math.max(most, tenant.starved_seconds || 0), 0);
  const figures = [
    ["Largest share error", percent(status.max_share_error), status.max_share_error > thresholds().share_error_ratio],
    ["Jain's index", known(status.jain_index) ? status.jain_index.toFixed(3) : "no tenant waits", false],
    ["Last convergence", seconds(status.convergence_seconds), false],
    ["Longest starvation", starved > 0 ? seconds(starved) : "none", false],
    ["Values overwritten", String(status.nr_drift), status.nr_drift > 0],
    ["Values left to others", String(status.nr_contested), status.nr_contested > 0],
    ["Values without effect", String(status.nr_ineffective), status.nr_ineffective > 0],
    ...(known(status.jobs) ? [["Jobs", jobsInWords(status.jobs), false]] : []),
    ["CPUs to divide", `${cores(status.host.capacity_cores)} of ${status.host.cpus}`, false],
    ["Other processes", cores(status.host.outside_cores) + " CPUs", false],
  ];
  const list = $("figures");
  while (list.children.length > figures.length) list.lastChild.remove();
  while (list.children.length < figures.length) {
    const box = element("div");
    box.append(element("dt"), element("dd"));
    list.append(box);
  }
  figures.forEach(([name, value, isBad], at) => {
    const [term, figure] = list.children[at].children;
    setText(term, name);
    setText(figure, value);
    figure.classList.toggle("bad", isBad);
  });
}

// Makes `wanted` the children of `list`, in this order, and moves only those that are out of place.
function arrange(list, wanted) {
  wanted.forEach((node, at) => {
    if (list.children[at] !== node) list.insertBefore(node, list.children[at] || null);
  });
  while (list.children.length > wanted.length) list.lastChild.remove();
}

function drawTenants(status) {
  const filter = $("filter").value.trim().toLowerCase();
  const index = new Map(status.tenants.map((tenant, at) => [tenant.name, at]));
  const all = withGroups(status);
  const fitting = sorted(all).filter((tenant) => tenant.name.toLowerCase().includes(filter));
  const shown = fitting.slice(0, TENANTS_MAX);
  arrange($("list"), shown.map((tenant) => drawTenant(tenant, index.get(tenant.name), status.host)));
  const names = new Set(all.map((tenant) => tenant.name));
  for (const name of [...rows.keys()]) if (!names.has(name)) rows.delete(name);
  const hidden = all.length - shown.length;
  $("more").hidden = hidden === 0;
  setText($("more"), `${hidden} more tenants and groups, ${fitting.length - shown.length} of them match the filter.`);
}

function drawCpus(status) {
  const count = status.host.cpus;
  const pinned = status.tenants.filter((tenant) => known(tenant.cpus));
  const occupants = new Map();
  let highest = count - 1;
  for (const tenant of pinned) {
    for (const cpu of cpuList(tenant.cpus, 4096)) {
      highest = Math.max(highest, cpu);
      if (!occupants.has(cpu)) occupants.set(cpu, []);
      occupants.get(cpu).push(status.tenants.indexOf(tenant));
    }
  }
  const cells = [];
  if (pinned.length > 0) {
    for (let cpu = 0; cpu <= Math.min(highest, 4095); cpu += 1) {
      const cell = element("li");
      const here = occupants.get(cpu) || [];
      cell.append(element("span", "", String(cpu)));
      for (const at of here.slice(0, 3)) {
        const part = element("i", "", status.tenants[at].name.split("/").pop().slice(0, 2));
        part.style.background = HUES[at % HUES.length];
        cell.append(part);
      }
      const names = here.map((at) => status.tenants[at].name).join(", ") || "not pinned to one tenant";
      cell.title = `CPU ${cpu}: ${names}`;
      cell.setAttribute("aria-label", cell.title);
      cells.push(cell);
    }
  }
  $("cpus").replaceChildren(...cells);
  const wide = status.tenants.filter((tenant) => known(tenant.dop));
  const sum = wide.reduce((all, tenant) => all + tenant.dop, 0);
  setText(
    $("map-note"),
    (pinned.length > 0
      ? `${pinned.length} of ${status.tenants.length} tenants are pinned to CPUs. `
      : "No tenant is pinned: all tenants run on all CPUs. ") +
      (wide.length > 0 ? `Degree of parallelism (DOP) of each tenant, ${sum} in total:` : ""),
  );
  const widths = wide.slice(0, 64).flatMap((tenant) => {
    const boxes = element("div", "boxes");
    for (let at = 0; at < Math.min(count, 256); at += 1) {
      const box = element("i");
      if (at < tenant.dop) box.style.background = HUES[status.tenants.indexOf(tenant) % HUES.length];
      boxes.append(box);
    }
    boxes.setAttribute("aria-hidden", "true");
    return [element("div", "name", tenant.name), boxes, element("div", "", `DOP ${tenant.dop}`)];
  });
  $("widths").replaceChildren(...widths);
}

function drawFindings(status) {
  const list = $("findings");
  const texts = status.findings.length > 0 ? status.findings : ["No findings."];
  const same = texts.length === list.children.length && texts.every((text, at) => list.children[at].textContent === text);
  if (!same) list.replaceChildren(...texts.map((text) => element("li", "", text)));
  list.classList.toggle("none", status.findings.length === 0);
}

function drawWrites(status) {
  const actions = status.actions;
  const done = status.mode === "enforce" ? "wrote" : "would have written";
  setText($("writes-note"), actions.length > 0 ? `The last tick ${done} ${actions.length} values.` : `The last tick ${done} nothing: every file holds its value.`);
  $("writes").hidden = actions.length === 0;
  const lines = actions.slice(0, 100).map((action) => {
    const line = element("tr");
    const file = element("td", "", action.path.split("/").pop());
    file.title = action.path;
    line.append(
      element("td", "", action.tenant), file,
      element("td", "", known(action.from) ? action.from : "–"), element("td", "", action.to), element("td", "", action.reason),
    );
    return line;
  });
  $("writes").tBodies[0].replaceChildren(...lines);
}

function remember(status) {
  const names = new Set();
  for (const tenant of withGroups(status)) {
    names.add(tenant.name);
    const points = history.get(tenant.name) || [];
    points.push(tenant.usage_cores);
    if (points.length > HISTORY_MAX) points.shift();
    history.set(tenant.name, points);
  }
  for (const name of [...history.keys()]) if (!names.has(name)) history.delete(name);
}

function drawAll(status) {
  const mode = $("mode");
  mode.hidden = false;
  mode.className = "badge " + status.mode;
  setText(mode, status.mode);
  drawVerdict(status);
  drawFigures(status);
  drawTenants(status);
  drawCpus(status);
  drawFindings(status);
  drawWrites(status);
  setText(
    $("cost"),
    `tick ${status.tick}${status.time ? " at " + status.time : ""}, every ${seconds(status.interval_seconds)}, ` +
      `${status.host.hierarchy}. tenantd ${status.version || ""}: ${bytes(status.agent.resident_bytes)}, ` +
      `${seconds(status.agent.cpu_seconds)} of CPU time since its start, ${seconds(status.agent.tick_seconds)} per tick.`,
  );
  if (status.host.name) setText($("where"), "on " + status.host.name);
}

// --- the clock ---

function away(why) {
  document.body.classList.add("stale");
  $("away").hidden = false;
  setText($("away"), why);
}

async function ask() {
  try {
    const answer = await fetch("status.json", { cache: "no-store", signal: AbortSignal.timeout(5000) });
    const told = await answer.json();
    if (!answer.ok) return away(told.error || "tenantd does not answer.");
    if (drawnTick !== null && told.tick < drawnTick) history.clear(); // The daemon was restarted.
    document.body.classList.remove("stale");
    $("away").hidden = true;
    last = told;
    if (told.tick !== drawnTick) {
      lastAt = Date.now();
      remember(told);
      drawnTick = told.tick;
      drawAll(told);
    }
  } catch {
    away("The server of this page does not answer: see systemctl status tenantd-serve.");
  }
}

async function live() {
  if (!document.hidden) await ask();
  const interval = last ? Math.max(1, Math.min(60, last.interval_seconds)) : 2;
  setTimeout(live, interval * 1000);
}

function age() {
  if (last === null) return;
  const old = Math.round((Date.now() - lastAt) / 1000);
  const isStale = old > thresholds().stale_seconds;
  // A daemon that answers with the same tick again and again is as stale as one that does not answer.
  document.body.classList.toggle("stale", isStale || !$("away").hidden);
  setText($("age"), isStale ? `stale: ${old} s old` : "live");
}

setText($("where"), "on " + (location.hostname || "this machine"));
$("sort").addEventListener("change", () => last && drawTenants(last));
$("filter").addEventListener("input", () => last && drawTenants(last));
document.addEventListener("visibilitychange", () => document.hidden || ask());
setInterval(age, 1000);
live();
