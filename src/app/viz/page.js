// The page of weft viz: the data, the side bar, and the choice of the view. The data is in <script
// type="application/json"> elements, one for each line of weft_model_trace: #d0 the overview, #d1 the tensor graph,
// #d2.. the different kernels, parsed only when they are shown. The part of the address after # is the view, so that
// "back" works and a view can be linked to. Text from the model is always inserted as text, never as HTML.
"use strict";
const $ = id => document.getElementById(id);
const read = (memory => i => memory[i] ??= JSON.parse($("d" + i).textContent))([]);
const over = read(0);
// The purpose of a kernel, in words, and its colour: one for each part of the model, in all views.
const parts = [["embedding", 280], ["norm before attention", 175], ["Q, K and V", 215], ["attention", 195], ["attention output", 235], ["norm before the FFN", 160], ["FFN up and gate", 32], ["FFN down", 12],
  ["router", 55], ["experts up and gate", 42], ["experts down", 2], ["last norm", 145], ["output", 320], ["quantise activations", 90], ["positions", 0], ["state", 262]];
const partOf = new Map(Object.entries({attn_norm: "norm before attention", attn_q: "Q, K and V", attn_k: "Q, K and V", attn_v: "Q, K and V", attn_qkv: "Q, K and V", attn_output: "attention output", ffn_norm: "norm before the FFN",
  post_attention_norm: "norm before the FFN", ffn_gate: "FFN up and gate", ffn_up: "FFN up and gate", ffn_down: "FFN down", ffn_gate_inp: "router", ffn_gate_exps: "experts up and gate", ffn_up_exps: "experts up and gate",
  ffn_gate_up_exps: "experts up and gate", ffn_down_exps: "experts down", output_norm: "last norm", token_embd: "embedding", attn_q_norm: "attention", attn_k_norm: "Q, K and V", ssm_in: "state", ssm_out: "state", ssm_conv1d: "state"}));
const partFor = (role, short = role.replace(/^blk\.\*\./, "")) => partOf.get(short) ?? short.replaceAll("_", " ");
const kernels = over.kernels.map(([unique, level, role, buffers, us, wait, bytes, flops], i) => ({
  i, unique, level, role, part: partFor(role), us, wait, bytes, flops,
  reads: buffers.filter(b => b >= 0).map(b => over.buffers[b]), readIds: buffers.filter(b => b >= 0), writeIds: buffers.filter(b => b < 0).map(b => -1 - b)}));
const nUnique = 1 + Math.max(-1, ...kernels.map(k => k.unique));
const names = Array.from({length: nUnique}, (_, u) => /"name":"((?:[^"\\]|\\.)*)"/.exec($("d" + (u + 2)).textContent.slice(0, 400))[1]);
// The launches of one kernel, together.
const groups = names.map((name, u) => {
  const all = kernels.filter(k => k.unique === u), sum = f => all.reduce((s, k) => s + k[f], 0);
  return {u, name, all, roles: [...new Set(all.map(k => k.role))], parts: [...new Set(all.map(k => k.part))], count: all.length, us: sum("us"), wait: sum("wait"), bytes: sum("bytes"), flops: sum("flops")};
}).sort((a, b) => b.us - a.us);
const groupOf = u => groups.find(g => g.u === u);

// ---- small things -----------------------------------------------------------------------------------------------------------

const SVG = "http://www.w3.org/2000/svg";
function make(node, props, children) {
  for (const [k, v] of Object.entries(props ?? {})) {
    if (v === undefined || v === null || v === false) continue;
    if (k.startsWith("on")) node.addEventListener(k.slice(2), v);
    else if (k === "style") for (const [s, x] of Object.entries(v)) node.style.setProperty(s, x);
    else node.setAttribute(k, v === true ? "" : v);
  }
  node.append(...children.flat(Infinity).filter(c => c !== null && c !== undefined));
  return node;
}
const el = (tag, props, ...children) => make(document.createElement(tag), props, children);
const svg = (tag, props, ...children) => make(document.createElementNS(SVG, tag), props, children);
const number = (x, digits = 1) => x.toLocaleString("en", {minimumFractionDigits: digits, maximumFractionDigits: digits});
const time = us => us >= 1e4 ? number(us / 1e3, 1) + " ms" : number(us, us < 100 ? 1 : 0) + " µs";
const size = b => b >= 1 << 30 ? number(b / (1 << 30), 2) + " GiB" : b >= 1 << 20 ? number(b / (1 << 20), 2) + " MiB" : b >= 1024 ? number(b / 1024, 1) + " KiB" : b + " B";
const percent = (x, whole) => whole > 0 ? number(100 * x / whole, 1) + " %" : "-";
const shareOfLimit = (bytes, us) => over.limit_gb_s > 0 && us > 0 ? number(100 * bytes / us / 1e3 / over.limit_gb_s, 0) + " %" : "-";
const clear = node => { node.replaceChildren(); return node; };
const hues = new Map(parts);
for (const [i, p] of [...new Set(kernels.map(k => k.part))].filter(p => !hues.has(p)).entries()) hues.set(p, (70 + i * 137.5) % 360);
const colour = part => hues.has(part) ? `hsl(${hues.get(part).toFixed(0)} ${part === "positions" ? 0 : 55}% var(--light))` : "hsl(0 0% var(--light))";
function tip(event, text) {
  const t = $("tip");
  t.style.display = text ? "block" : "none";
  if (!text) return;
  t.textContent = text;
  t.style.left = Math.min(event.clientX + 14, innerWidth - t.offsetWidth - 8) + "px";
  t.style.top = Math.min(event.clientY + 14, innerHeight - t.offsetHeight - 8) + "px";
}
const hover = text => ({onmousemove: e => tip(e, typeof text === "function" ? text() : text), onmouseleave: e => tip(e, "")});
const describe = k => `${k.part} (${k.role})   ${names[k.unique]}\nlaunch ${k.i} in dispatch ${k.level}, ${time(k.us)}, ${time(k.wait)} of it waiting\n${size(k.bytes)} moved, ${k.us ? number(k.bytes / k.us / 1e3) : 0} GB/s`;

// ---- which view -------------------------------------------------------------------------------------------------------------

const views = {
  overview: {title: "Overview", show: showOverview},
  kernels: {title: "Kernels", show: showKernels},
  timeline: {title: "Timeline", show: showTimeline},
  graph: {title: "Graph", show: showKernelGraph},
  memory: {title: "Memory", show: showMemory},
  model: {title: "Rewrites of the model", show: showModel},
};
const go = hash => { location.hash = hash; };
function route() {
  const [view, ...rest] = location.hash.slice(1).split("/");
  tip(null, "");
  const shown = view === "kernel" && groupOf(+rest[0]) || Object.hasOwn(views, view) ? view : "overview";
  for (const a of $("nav").children) a.classList.toggle("on", a.dataset.view === shown || (shown === "kernel" && a.dataset.view === "kernels"));
  for (const a of $("list").children) {
    const on = shown === "kernel" && a.dataset.unique === rest[0];
    a.classList.toggle("on", on);
    if (on) a.scrollIntoView({block: "nearest"});
  }
  const main = $("main"), key = shown === "kernel" ? [shown, ...rest.slice(0, 2)].join("/") : shown;
  if (main.dataset.key !== key || !main.update) {
    main.dataset.key = key;
    main.update = main.step = null;                     // functions of views that update only a part of themselves
    clear(main).scrollTop = 0;
    if (shown === "kernel") showKernel(main, +rest[0], rest[1] || "source", rest.slice(2));
    else views[shown].show(main, rest);
  } else main.update(shown === "kernel" ? rest.slice(2) : rest);
}

// ---- the side bar -----------------------------------------------------------------------------------------------------------

function matches(g, query) {
  return query.split(/\s+/).every(w => g.name.toLowerCase().includes(w) || [...g.roles, ...g.parts].some(r => r.toLowerCase().includes(w)) ||
    g.all.some(k => k.reads.some(b => b.toLowerCase().includes(w))) || (w.length > 2 && $("d" + (g.u + 2)).textContent.toLowerCase().includes(w)));
}
function fillList() {
  const query = $("search").value.trim().toLowerCase();
  const found = groups.filter(g => !query || matches(g, query));
  clear($("list")).append(...found.map(g => el("a", {href: `#kernel/${g.u}/source`, "data-unique": g.u, style: {"--share": 100 * g.us / (groups[0].us || 1) + "%"}, title: g.roles.join(", ")},
    el("span", {class: "role"}, el("i", {class: "dot", style: {background: colour(g.parts[0])}}), g.parts.join(", ")), el("span", {class: "us"}, time(g.us)),
    el("span", {class: "name"}, g.name), el("span", {class: "count"}, "× " + g.count))));
  if (!found.length) $("list").append(el("p", {class: "under", style: {padding: "8px 14px"}}, "Nothing has that."));
}

// ---- keys -------------------------------------------------------------------------------------------------------------------

const keys = [["/", "search"], ["j  k", "next, previous kernel"], ["1 … 6", "the views above"], ["s r g m p", "of a kernel: source, rewrites, graph, tensors, program"], ["n  b", "next, previous step of the rewrites"],
  ["t", "dark or light"], ["?", "this help"]];
function help() {
  const d = clear($("help"));
  d.append(el("h2", {}, "Keys"), el("table", {}, el("tbody", {}, keys.map(([k, what]) => el("tr", {}, el("td", {}, k.split(/ +/).map(x => x === "…" ? " … " : [el("kbd", {}, x), " "])), el("td", {}, what))))),
    el("p", {class: "under"}, "Graphs and the timeline: drag to move, wheel to zoom, double click to see all."));
  d.showModal();
}
function neighbour(by) {
  const links = [...$("list").querySelectorAll("a")], at = links.findIndex(a => a.classList.contains("on"));
  const next = links[Math.max(0, Math.min(links.length - 1, at + by))];
  if (next) go(next.getAttribute("href").replace("source", location.hash.split("/")[2] || "source"));
}
function key(e) {
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  if (e.target === $("search")) {
    if (e.key === "Escape") { $("search").value = ""; fillList(); $("main").focus(); }
    if (e.key === "Enter") { const first = $("list").querySelector("a"); if (first) { go(first.getAttribute("href")); $("main").focus(); } }
    return;
  }
  if (/^(INPUT|SELECT)$/.test(e.target.tagName) && e.key.length > 1) return;
  const view = Object.keys(views)[+e.key - 1], tab = {s: "source", r: "rewrites", g: "graph", m: "tensors", p: "program"}[e.key], [at, unique] = location.hash.slice(1).split("/");
  if (view) go(view);
  else if (e.key === "/") $("search").focus();
  else if (e.key === "?") help();
  else if (e.key === "t") flip();
  else if (e.key === "j" || e.key === "k") neighbour(e.key === "j" ? 1 : -1);
  else if (tab && at === "kernel") go(`kernel/${unique}/${tab}`);
  else if ((e.key === "n" || e.key === "b") && $("main").step) $("main").step(e.key === "n" ? 1 : -1);
  else return;
  e.preventDefault();
}
function flip() {
  const dark = document.documentElement.classList.toggle("dark");
  try { localStorage.setItem("weft-dark", dark ? "1" : "0"); } catch (e) { /* a page from a file may have no storage */ }
}

function start() {
  let dark = matchMedia("(prefers-color-scheme: dark)").matches;
  try { dark = {1: true, 0: false}[localStorage.getItem("weft-dark")] ?? dark; } catch (e) { /* the same */ }
  document.documentElement.classList.toggle("dark", dark);
  const file = over.path.split("/").pop();
  document.title = "Weft: " + file;
  $("title").textContent = file;
  $("facts").textContent = `${over.dispatches} kernels per ${over.tokens > 1 ? `chunk of ${over.tokens}` : "token"} · ${nUnique} different · ${over.threads} thread${over.threads > 1 ? "s" : ""} · ` +
    `${time(over.step_us)} · ${number(1e6 * over.tokens / over.step_us)} tokens/s at depth ${over.depth}`;
  $("nav").append(...Object.entries(views).map(([v, {title}]) => el("a", {href: "#" + v, "data-view": v}, title)));
  $("search").addEventListener("input", () => { fillList(); route(); });
  $("theme").addEventListener("click", flip);
  $("ask").addEventListener("click", help);
  addEventListener("keydown", key);
  addEventListener("hashchange", route);
  fillList();
  route();
}
