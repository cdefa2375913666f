// The explorer's page. Whatever comes from the cluster becomes text nodes, never markup.
"use strict";

const main = document.getElementById("main");
const search = document.getElementById("search");
const help = document.getElementById("help");
const PAGE = 100;

let summary = null;
let rows = [];        // the rows that j and k go through
let at = -1;
let turn = 0;         // answers to earlier questions are dropped
let timer = null;

// Elements. Children are elements or text; a property that is null is left out.
function el(tag, props, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined) continue;
    if (name === "onclick") made.addEventListener("click", value);
    else made.setAttribute(name, value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined) made.append(child);
  }
  return made;
}

function show(page, ...children) {
  main.replaceChildren(...children.filter((child) => child !== null));
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === page) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  rows = Array.from(main.querySelectorAll("tr.row"));
  at = -1;
  main.dataset.shown = page;
}

async function ask(what, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters || {})) {
    if (value !== "" && value !== null && value !== undefined) query.set(name, value);
  }
  const response = await fetch("/explore/api/" + what + "?" + query);
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error || "status " + response.status);
  return answer;
}

const number = (n) => Number(n).toLocaleString("en");
const plural = (n, one, many) => number(n) + " " + (n === 1 ? one : many);

function plain(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

// Where we are: #/page/argument?parameters
function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const [page, ...rest] = path.split("/");
  return {
    page: page || "services",
    rest: rest.map(plain).join("/"),
    parameters: Object.fromEntries(new URLSearchParams(query || "")),
  };
}

function address(page, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters || {})) if (value) query.set(name, value);
  const text = query.toString();
  return "#/" + page + (text ? "?" + text : "");
}

const ofService = (name) => "#/service/" + name.split("/").map(encodeURIComponent).join("/");

// Tones and words for what answers name; what is so, they decide. Green is for what has nothing to look at.
const STATES = {
  failing: ["bad", "no ready endpoint"],
  "other-ports": ["bad", "no endpoint for its ports"],
  ending: ["warn", "only ending endpoints"],
  "not-here": ["warn", "policy Local: none here for pods"],
  partly: ["warn", "partly ready"],
  "not-here-outside": ["plain", "policy Local: none here for outside"],
  "ready-with-notes": ["warn", "ready, with notes"],
  ready: ["good", "ready"],
  "not-served": ["faint", "not kube-proxy's"],
};
const HEALTH = { ready: "good", "not-ready": "bad", terminating: "bad", "serving-while-terminating": "warn" };
const ROUTES = { endpoints: null, "not-routed": null, depends: "warn", "not-known": "warn" };
const REACH = { yes: "good", no: "bad", sometimes: "warn", "not-ours": "faint", unknown: "warn" };

function stateOf(service) {
  const [tone, words] = STATES[service.kind] || ["faint", service.kind];
  return el("span", { class: "state " + tone }, words);
}

// Whose rules are shown: another node may answer otherwise.
function seenFrom(seen) {
  if (!seen.node) return "No Node is known: what is here, is as a node sees it that has no endpoint of its own.";
  return "As node " + seen.node + " sees it" + (seen.is_one_of_several ? ", the first of the Nodes" : "") +
    ": its rules, its pods" + (seen.nodes > 1 ? ". Other nodes may answer otherwise" : "") + ".";
}

// ---- services

async function services(parameters, mine) {
  const state = parameters.state || "";
  const found = await ask("services", { search: parameters.search, state, limit: PAGE });
  if (mine !== turn) return;
  const chip = (word, count, tone, words) => el("a", {
    class: "chip " + tone, href: address("services", { state: word, search: parameters.search }),
    "aria-current": state === word ? "true" : null, "data-state": word,
  }, el("b", {}, number(count)), words);
  const chips = el("div", { class: "chips" },
    chip("", summary.services, "", "services"),
    Object.entries(STATES).filter(([word]) => word in summary.states).map(([word, [tone, words]]) => {
      const count = summary.states[word];
      const isRare = ["other-ports", "not-here", "not-here-outside"].includes(word);
      return count || !isRare || state === word ? chip(word, count, count && ["bad", "warn"].includes(tone) ? tone : "", words) : null;
    }),
    chip("noted", summary.noted, summary.warned ? "warn" : "", "with notes"));
  const body = el("tbody", {}, found.services.map(serviceRow));
  const table = el("div", { class: "wide" }, el("table", {},
    el("thead", {}, el("tr", {}, el("th", {}, "Service"), el("th", {}, "Endpoints"), el("th", { class: "number" }, "ready"),
      el("th", {}, "Type"), el("th", {}, "Addresses"), el("th", {}, "Ports"), el("th", { class: "number" }, "Notes"))),
    body));
  const count = el("p", { class: "faint", id: "count" }, plural(found.matched, "service", "services") +
    (parameters.search ? " with “" + parameters.search + "”" : ""));
  const more = el("button", { type: "button", id: "more", onclick: async () => {
    const next = await ask("services", { search: parameters.search, state, limit: PAGE, offset: body.rows.length });
    body.append(...next.services.map(serviceRow));
    rows = Array.from(main.querySelectorAll("tr.row"));
    more.hidden = body.rows.length >= next.matched;
  } }, "Show more");
  more.hidden = found.services.length >= found.matched;
  show("services", chips, count, found.matched ? table : el("p", {}, "No service fits."), more);
}

function serviceRow(service) {
  const href = ofService(service.name);
  return el("tr", { class: "row", "data-href": href },
    el("td", { class: "name" }, el("a", { href }, service.name)),
    el("td", {}, stateOf(service)),
    el("td", { class: "number" }, service.ready + " / " + service.endpoints),
    el("td", {}, service.type),
    el("td", { class: "mono" }, service.addresses.join(" ") || "none"),
    el("td", { class: "mono" }, service.ports || "none"),
    el("td", { class: "number" }, service.notes ? String(service.notes) : ""));
}

// ---- one service

async function service(name, mine) {
  const [found, changes] = await Promise.all([
    ask("service", { name }),
    summary.live ? ask("changes", { search: name, limit: 10 }) : null,
  ]);
  if (mine !== turn) return;
  const policies = [];
  if (found.internal_policy === "Local") policies.push("internal traffic: this node's endpoints only");
  if (found.external_policy === "Local") policies.push("external traffic: this node's endpoints only");
  if (found.affinity_seconds) policies.push("a client stays with its endpoint for " + found.affinity_seconds + " s");
  if (found.source_ranges.length) policies.push("load balancer only from " + found.source_ranges.join(", "));
  if (found.publishes_not_ready) policies.push("publishes endpoints that are not ready");
  show("services",
    el("h1", { id: "title" }, found.name),
    el("p", { class: "faint" }, [found.type, found.not_served].concat(policies).filter(Boolean).join(" · ")),
    el("p", { class: "faint", id: "seen" }, seenFrom(found.seen_from)),
    el("div", { id: "answers" }, found.answers.map(answerCard)),
    el("h2", {}, "Endpoints ", el("span", { class: "faint" }, number(found.endpoints_total))),
    endpointTable(found),
    found.ports.length ? el("h2", {}, "Addresses, and where " + (found.rules_are === "observed"
      ? "these objects would have this node send what comes for them (its saved rules decide)"
      : "this node sends what comes for them")) : null,
    found.ports.length ? frontendTable(found.ports) : null,
    found.counters ? el("h2", {}, "Counted on this node ", el("span", { class: "faint" },
      "from the rules’ counters, which are read every " + found.counted_every_seconds + " s; less often where reading takes long")) : null,
    found.counters ? counterTable(found.counters) : null,
    found.notes.length ? el("h2", {}, "Notes") : null,
    found.notes.length ? el("div", {}, found.notes.map(noteLine)) : null,
    changes && changes.changes.length ? el("h2", {}, "Last changes") : null,
    changes && changes.changes.length ? changeTable(changes.changes) : null,
    ruleList(found));
  main.dataset.path = address("path", { from: "pod", to: found.answers[0] && found.answers[0].asked_to,
    protocol: found.answers[0] && found.answers[0].protocol });
}

// What works and has something to look at is not green.
const toneOf = (answer) => answer.reachable === "yes" && answer.findings.length ? "warn" : REACH[answer.reachable] || "faint";

function answerCard(answer) {
  const tone = toneOf(answer);
  const draw = address("path", { from: answer.asked_from, to: answer.asked_to, protocol: answer.protocol });
  return el("section", { class: "card " + tone, "data-reachable": answer.reachable },
    el("div", { class: "head" },
      el("strong", {}, answer.headline),
      el("a", { href: draw }, "draw the path")),
    el("p", { class: "faint" }, "From ", answer.from, " to ", answer.to, ": the client ", answer.client),
    answer.findings.map(findingList), answer.remarks.map(remarkLine));
}

// Good to know: of a NetworkPolicy, which one it is is in the reason.
const remarkLine = (remark) => el("p", { class: "faint", "data-finding": remark.id },
  "Note: " + remark.what + (remark.why ? ". " + remark.why : ""));

// What the headline says already is not said again.
function findingList(finding) {
  const list = el("dl", { "data-finding": finding.id });
  if (!finding.is_in_headline) list.append(el("dt", {}, "also"), el("dd", {}, finding.what));
  if (finding.why) list.append(el("dt", {}, "why"), el("dd", {}, finding.why));
  finding.advice.forEach((advice, i) => {
    const where = [advice.object, advice.field].filter(Boolean).join(", ");
    list.append(el("dt", {}, i ? "or" : "do"), el("dd", {}, where ? el("b", {}, where + ": ") : null, advice.action));
  });
  return list;
}

function endpointTable(found) {
  if (!found.endpoints_total) return el("p", {}, "No slice lists an endpoint.");
  const left = found.endpoints_total - found.endpoints.length;
  const hinted = found.endpoints.some((one) => one.hints.length);
  const named = found.endpoints.some((one) => one.pod);
  const heads = ["Address", "Health", "Ports", named ? "Pod" : null, "Node", hinted ? "Meant for" : null, "Slice"];
  return el("div", { class: "wide" }, el("table", { id: "endpoints" },
    el("thead", {}, el("tr", {}, heads.filter(Boolean).map((it) => el("th", {}, it)))),
    el("tbody", {}, found.endpoints.map((one) => el("tr", {},
      el("td", { class: "mono" }, one.address),
      el("td", {}, el("span", { class: "state " + (HEALTH[one.kind] || "faint") }, one.state),
        one.trouble.map((it) => el("div", { class: "faint" }, it))),
      el("td", { class: "mono" }, one.ports.join(", ")),
      named ? el("td", {}, one.pod || "") : null,
      el("td", {}, (one.node || "") + (one.here ? " (here)" : "")),
      hinted ? el("td", {}, one.hints.join(", ")) : null,
      el("td", { class: "faint" }, one.slice))))),
    left ? el("p", { class: "faint" }, "and " + number(left) + " more, all of them after these in the order: not ready first") : null);
}

function routeText(route) {
  if (route.kind !== "endpoints") return route.ends + ": " + route.reason;
  return plural(route.endpoints, "endpoint", "endpoints") + ", source " + (route.masquerade ? "rewritten" : "kept") +
    (route.only_from ? ", only from " + route.only_from : "");
}

function frontendTable(ports) {
  const tone = (route) => {
    const known = route.kind in ROUTES ? ROUTES[route.kind] : "bad";
    return known && "state " + known;
  };
  const cell = (route) => el("td", { title: route.reason }, el("span", { class: tone(route) }, routeText(route)));
  return el("div", { class: "wide" }, el("table", {},
    el("thead", {}, el("tr", {}, ["Port", "Address", "from a pod", "from the node", "from outside"].map((it) => el("th", {}, it)))),
    el("tbody", {}, ports.map((port) => {
      const name = (port.name ? port.name + " " : "") + port.port + "/" + port.protocol;
      if (!port.frontends.length) {
        return el("tr", {}, el("td", {}, name), el("td", { colspan: "4" }, "no address that this node serves"));
      }
      return port.frontends.map((front) => el("tr", {},
        el("td", {}, name),
        el("td", {}, el("span", { class: "faint" }, front.what + " "), el("span", { class: "mono" }, front.at)),
        cell(front.pod), cell(front.node), cell(front.outside)));
    }))));
}

function counterTable(counters) {
  if (!counters.length) return el("p", {}, "Nothing was counted so far.");
  const heads = ["Port", "Family", "New connections", "Packets rejected", "Packets dropped"];
  return el("div", { class: "wide" }, el("table", { id: "counters" },
    el("thead", {}, el("tr", {}, heads.map((it) => el("th", {}, it)))),
    el("tbody", {}, counters.map((one) => el("tr", {},
      el("td", {}, one.port || "(no name)"), el("td", {}, one.family),
      [one.connections, one.rejected, one.dropped].map((it) => it === null
        ? el("td", { class: "faint" }, "not counted in " + summary.mode + " mode") : el("td", { class: "mono" }, number(it))))))));
}

function ruleList(found) {
  const rules = found.rules.rules;
  if (!rules.length) return null;
  const are = found.rules_are === "observed" ? "as they were saved on the host" : "as its objects ask for them";
  return el("details", { id: "rules" }, el("summary", {}, plural(rules.length, "rule", "rules") + " of this service, " + are),
    el("div", { class: "rules" }, rules.map((rule) => [
      el("span", { class: "faint" }, rule.family + " " + rule.table),
      el("span", {}, rule.chain + (rule.number ? " " + rule.number : "")),
      el("span", {}, rule.text),
    ])),
    found.rules.are_more ? el("p", { class: "faint" }, "and more") : null);
}

// ---- path

async function path(parameters, mine) {
  const from = el("input", { id: "from", list: "senders", value: parameters.from || "pod", spellcheck: "false" });
  const to = el("input", { id: "to", value: parameters.to || "", spellcheck: "false", placeholder: "namespace/service:port, IP:port, node:port" });
  const protocol = el("select", { id: "protocol" },
    ["", "tcp", "udp", "sctp"].map((word) => el("option", { value: word }, word ? word.toUpperCase() : "any")));
  protocol.value = parameters.protocol || "";
  const form = el("form", { class: "ask" },
    el("label", {}, "From: pod, its name or IP, node, outside", from),
    el("label", {}, "To", to),
    el("label", {}, "Protocol", protocol),
    el("button", {}, "Draw"),
    el("datalist", { id: "senders" }, ["pod", "node", "outside"].concat(summary.nodes).map((it) => el("option", { value: it }))));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    go(address("path", { from: from.value, to: to.value, protocol: protocol.value }));
  });
  if (!parameters.to) {
    show("path", form, el("p", { class: "faint" }, "Where does a packet go? Give a sender and a destination."));
    to.focus();
    return;
  }
  try {
    const found = await ask("path", parameters);
    if (mine === turn) show("path", form, ...drawn(found));
  } catch (error) {
    if (mine === turn) show("path", form, el("p", { class: "card bad", id: "error" }, error.message));
  }
}

function drawn(found) {
  const tone = toneOf(found);
  const box = (title, ...rest) => el("li", {}, el("div", { class: "box" }, el("div", { class: "title" }, title), rest));
  const steps = [box(found.from, found.packet
    ? el("div", { class: "mono" }, found.packet.source + " → " + found.packet.destination + " " + found.packet.protocol) : null)];
  for (const step of found.steps) {
    const isOneOfMany = step.is_one_of_endpoints && found.endpoints_total > 1;
    const title = [step.table + " " + step.chain, isOneOfMany ? el("span", { class: "faint" }, " (for example; each endpoint has one)") : null];
    steps.push(box(title, step.rules.map((rule) => el("div", { class: "rule" },
      el("span", { class: "faint" }, rule.number === null ? "" : String(rule.number)),
      el("span", { class: "mono" }, rule.text)))));
  }
  if (found.endpoints.length) {
    const left = found.endpoints_total - found.endpoints.length;
    steps.push(el("li", {},
      el("p", { class: "faint" }, found.endpoints_total > 1 ? "one of " + number(found.endpoints_total) + ", by chance:" : "to the only one:"),
      el("div", { class: "fork" }, found.endpoints.map((one) => el("div", { class: "box" + (one.works ? "" : " bad") },
        el("div", { class: "title mono" }, one.endpoint),
        el("div", {}, [one.pod, one.node ? "on " + one.node : null, one.state].filter(Boolean).join(", ")),
        el("div", { class: "faint" }, one.masquerade ? "sees the source " + (one.source || "of the node") : "sees the client’s own address"),
        one.works ? null : el("div", { class: "state bad" }, "does not work"),
        el("meter", { min: "0", max: "1", value: String(one.chance), title: "chance" }),
        el("div", { class: "faint" }, Math.round(one.chance * 1000) / 10 + " %")))),
      left ? el("p", { class: "faint" }, "and " + number(left) + " more") : null));
  }
  steps.push(el("li", {}, el("div", { class: "box end " + tone }, el("div", { class: "title" }, "The client " + found.client))));
  const isTold = found.findings.concat(found.remarks).some((it) => it.id === "seen-from");
  const are = { observed: "the host’s saved rules", rendered: "the rules that the objects ask for", none: "what the objects ask for" };
  return [
    el("section", { class: "card " + tone, id: "verdict", "data-reachable": found.reachable },
      el("div", { class: "head" }, el("strong", {}, found.headline),
        found.service ? el("a", { href: ofService(found.service) }, found.service) : null),
      el("p", { class: "faint" }, "To " + found.to + ", on " + found.node + ", " + found.mode + " mode, by " + are[found.rules_are]),
      found.other_node && !isTold ? el("p", { id: "other-node" }, el("b", {}, "Of another node: "), "this page has the rules of " + found.node +
        ", and such a packet meets those of " + found.other_node + ", which may say otherwise. Ask there: kube-proxy explore --node " +
        found.other_node + ", or explain --node " + found.other_node + ".") : el("p", { class: "faint", id: "seen" }, seenFrom(found.seen_from)),
      found.findings.map(findingList), found.remarks.map(remarkLine)),
    el("ol", { class: "way", id: "way" }, steps),
    found.addresses.length ? el("p", { class: "faint" }, "This node port answers at " + found.addresses.join(", ")) : null,
    found.next.length ? el("h2", {}, "Next") : null,
    ...found.next.map((line) => el("p", {}, el("code", {}, line))),
  ];
}

// ---- changes

async function changes(parameters, mine) {
  if (!summary.live) {
    show("changes", el("p", {}, "These objects were read once. A daemon that was started with --explorer tells of changes."));
    return;
  }
  const found = await ask("changes", { search: parameters.search, limit: 300 });
  if (mine !== turn) return;
  const kept = document.getElementById("changes") ? at : -1;
  show("changes",
    el("p", { class: "faint" }, "The last " + number(found.kept) + " changes, newest first; at most " + number(found.most) + " are kept."),
    found.changes.length ? changeTable(found.changes) : el("p", {}, "No change fits."));
  if (kept >= 0) move(kept);
}

function took(change) {
  if (change.kernel === "waits") return el("span", { class: "state warn" }, "waits");
  if (change.kernel === "none") return el("span", { class: "faint" }, "no rule of it");
  const ms = change.took_ms;
  const words = ms < 1 ? "< 1 ms" : ms < 1000 ? Math.round(ms) + " ms" : (ms / 1000).toFixed(2) + " s";
  return el("span", {}, words, change.kernel === "as-it-was" ? el("span", { class: "faint" }, " (nothing to write)") : null);
}

function time(ms) {
  const at = new Date(ms);
  return at.toLocaleTimeString("en-GB") + "." + String(at.getMilliseconds()).padStart(3, "0");
}

function changeTable(list) {
  return el("div", { class: "wide" }, el("table", { id: "changes" },
    el("thead", {}, el("tr", {}, ["Heard", "Object", "What changed", "In the kernel after", "at"].map((it) => el("th", {}, it)))),
    el("tbody", {}, list.map((change) => el("tr", { class: "row", "data-href": change.service ? ofService(change.service) : null },
      el("td", { class: "mono" }, time(change.heard_ms)),
      el("td", {}, el("span", { class: "faint" }, change.kind + " "),
        change.service ? el("a", { href: ofService(change.service) }, change.object) : change.object),
      el("td", {}, change.what, change.why ? el("div", { class: "state bad" }, change.why) : null),
      el("td", {}, took(change)),
      el("td", { class: "mono" }, change.kernel_ms ? time(change.kernel_ms) : ""))))));
}

// ---- notes

async function notes(parameters, mine) {
  const found = await ask("notes", { search: parameters.search, limit: 500 });
  if (mine !== turn) return;
  show("notes",
    el("p", { class: "faint" }, plural(found.matched, "note", "notes") + " about objects: what was left out of them, and why"),
    el("div", {}, found.notes.map(noteLine)),
    found.notes.length < found.matched ? el("p", { class: "faint" }, "The first " + found.notes.length + "; search for others.") : null);
}

function noteLine(note) {
  const tone = { error: "bad", warning: "warn" }[note.severity] || "faint";
  return el("p", {}, el("span", { class: "state " + tone }, note.severity), " ",
    note.service ? el("a", { href: ofService(note.service) }, note.object) : note.object, ": ", note.what);
}

// ---- going about

function go(hash) {
  if (location.hash === hash) route(); else location.hash = hash;
}

async function route() {
  clearTimeout(timer);
  const mine = ++turn;
  const { page, rest, parameters } = place();
  if (document.activeElement !== search) search.value = parameters.search || "";
  try {
    const told = await ask("summary");
    if (mine !== turn) return;
    summary = told;
    tellAbout();
    if (page === "service") await service(rest, mine);
    else if (page === "path") await path(parameters, mine);
    else if (page === "changes") await changes(parameters, mine);
    else if (page === "notes") await notes(parameters, mine);
    else await services(parameters, mine);
  } catch (error) {
    if (mine === turn) show(page, el("p", { class: "card bad", id: "error" }, error.message));
  }
  if (mine === turn) again(page);
}

// A daemon's page follows what happens, unless somebody is at a row, reads rules, or marks text.
function again(page) {
  const follows = !summary || (summary.live && ["services", "service", "changes"].includes(page));
  if (!follows) return;
  timer = setTimeout(() => {
    const isBusy = document.hidden || (at >= 0 && page !== "changes") || rows.length > PAGE && page === "services" ||
      main.querySelector("details[open]") || getSelection().toString();
    if (isBusy) again(page); else route();
  }, page === "changes" ? 2000 : 4000);
}

function tellAbout() {
  const read = new Date(summary.read_ms).toLocaleTimeString("en-GB");
  document.getElementById("about").textContent = summary.node_words + (summary.is_one_of_several ? " (one of several)" : "") +
    " · " + summary.mode + " mode · " + (summary.live ? "as of " : "read at ") + read + " · " + summary.version;
}

function move(to) {
  if (!rows.length) return;
  at = Math.max(0, Math.min(rows.length - 1, to));
  rows.forEach((row, i) => row.classList.toggle("at", i === at));
  rows[at].scrollIntoView({ block: "nearest" });
  if (at === rows.length - 1) {
    const more = document.getElementById("more");
    if (more && !more.hidden) more.click();
  }
}

function open(row) {
  if (row && row.dataset.href) go(row.dataset.href);
}

let typing = null;
search.addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => {
    const { page, parameters } = place();
    const searched = ["services", "changes", "notes"].includes(page) ? page : "services";
    const kept = searched === page ? parameters : {};
    history.replaceState(null, "", address(searched, { ...kept, search: search.value }));
    route();
  }, 120);
});
document.getElementById("finder").addEventListener("submit", async (event) => {
  event.preventDefault();
  clearTimeout(typing);
  const { page } = place();
  if (page === "changes" || page === "notes") { search.blur(); return; }
  const found = await ask("services", { search: search.value, limit: 1 });
  if (found.services.length) { search.blur(); go(ofService(found.services[0].name)); }
});
main.addEventListener("click", (event) => {
  if (event.target.closest("a, button, summary, input") || getSelection().toString()) return;
  open(event.target.closest("tr.row"));
});
document.getElementById("keys").addEventListener("click", () => help.showModal());

const KEYS = {
  "/": () => { search.focus(); search.select(); },
  j: () => move(at + 1),
  k: () => move(at - 1),
  Enter: () => open(rows[at]),
  Escape: () => history.back(),
  s: () => go("#/services"),
  p: () => go("#/path"),
  c: () => go("#/changes"),
  n: () => go("#/notes"),
  f: () => go("#/services?state=failing"),
  t: () => { if (place().page === "service" && main.dataset.path) go(main.dataset.path); },
  r: () => route(),
  "?": () => help.showModal(),
};
document.addEventListener("keydown", (event) => {
  if (help.open || event.ctrlKey || event.altKey || event.metaKey) return;
  const target = event.target;
  if (target.matches("input, select, textarea")) {
    if (event.key === "Escape") { target.blur(); event.preventDefault(); }
    return;
  }
  if (event.key === "Enter" && target.matches("a, button, summary")) return;
  const act = KEYS[event.key];
  if (act) { event.preventDefault(); act(); }
});
addEventListener("hashchange", route);
route();
