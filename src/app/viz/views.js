// The views of the whole model: the first page, the table of kernels, the timeline, the graph of kernels, memory.

// ---- the first page: where does the time of a token go? -----------------------------------------------------------------------

// Sums {part, us, bytes, flops} by part, the longest first.
function byPart(list) {
  const sums = new Map();
  for (const k of list) {
    const s = sums.get(k.part) ?? {part: k.part, us: 0, bytes: 0, flops: 0, count: 0};
    s.us += k.us; s.bytes += k.bytes; s.flops += k.flops; s.count++;
    sums.set(k.part, s);
  }
  return [...sums.values()].sort((a, b) => b.us - a.us);
}

// A bar of pieces {part, us}, labelled if the label fits; whole: the value of 100 %.
function stack(pieces, whole, more) {
  return el("div", {class: "stack", ...more}, pieces.filter(p => p.us > 0).map(p => el("span", {style: {width: 100 * p.us / whole + "%", background: p.colour ?? colour(p.part)}, ...hover(`${p.part}\n${p.note ?? `${time(p.us)}, ${percent(p.us, whole)}`}`)},
    p.us / whole > .07 ? p.part : "")));
}
const limitTime = s => over.limit_gb_s > 0 ? Math.min(s.us, s.bytes / over.limit_gb_s / 1e3) : 0;

function timeOf(title, note, list, whole, tokens) {
  const rows = byPart(list), rest = Math.max(0, whole - rows.reduce((s, r) => s + r.us, 0)), limit = rows.map(r => ({...r, us: limitTime(r), note: `${r.part}: ${size(r.bytes)} at ${number(over.limit_gb_s)} GB/s would take ${time(r.bytes / over.limit_gb_s / 1e3)}`}));
  return el("section", {class: "where"}, el("h3", {}, title), el("p", {class: "under"}, note),
    el("div", {class: "bars"}, el("label", {}, "measured"), stack([...rows, {part: "between kernels", us: rest, colour: "var(--dim)"}], whole), over.limit_gb_s > 0 ? [el("label", {}, "memory allows"), stack(limit, whole, {class: "stack thin"})] : null),
    el("table", {}, el("thead", {}, el("tr", {}, el("th", {}, "part of the model"), ["time", "share", "GB/s", "GFLOP/s", "of limit"].map((h, i) => el("th", {class: i > 1 && i < 4 ? "n wide" : "n"}, h)))),
      el("tbody", {}, rows.map(r => el("tr", {}, el("td", {}, el("i", {class: "dot", style: {background: colour(r.part)}}), r.part), el("td", {class: "n"}, time(r.us / tokens)), el("td", {class: "n"}, percent(r.us, whole)),
        el("td", {class: "n wide"}, number(r.us ? r.bytes / r.us / 1e3 : 0)), el("td", {class: "n wide"}, number(r.us ? r.flops / r.us / 1e3 : 0)), el("td", {class: "n"}, shareOfLimit(r.bytes, r.us)))))));
}

// Pieces of one kind as a list, with amounts: [[name, value]...].
function amounts(title, note, pieces, show) {
  const whole = pieces.reduce((s, [, x]) => s + x, 0) || 1, rows = pieces.filter(([, x]) => x > 0).sort((a, b) => b[1] - a[1]), shade = i => `hsl(${(215 + i * 47) % 360} 40% var(--light))`;
  return el("section", {class: "where"}, el("h3", {}, title), el("p", {class: "under"}, note), stack(rows.map(([part, us], i) => ({part, us, colour: shade(i), note: `${show(us)}, ${percent(us, whole)}`})), whole),
    el("table", {}, el("tbody", {}, rows.map(([name, x], i) => el("tr", {}, el("td", {}, el("i", {class: "dot", style: {background: shade(i)}}), name), el("td", {class: "n"}, show(x)), el("td", {class: "n"}, percent(x, whole)))))));
}

function showOverview(main) {
  const other = over.other, others = other.kernels.map(([role, , us, bytes, flops]) => ({part: partFor(role), us, bytes, flops}));
  const one = n => n === 1, what = n => one(n) ? "A token" : `A prompt, in chunks of ${n} tokens`, per = (n, us) => `${time(us / n)} a token: ${number(1e6 * n / us)} tokens a second`;
  const mine = timeOf(what(over.tokens), per(over.tokens, over.step_us) + `, at depth ${over.depth}, on ${over.threads} thread${over.threads > 1 ? "s" : ""}`, kernels, over.step_us, over.tokens), theirs = timeOf(what(other.tokens), per(other.tokens, other.us), others, other.us, other.tokens);
  main.append(el("h2", {}, "Where does the time of a token go?"),
    el("p", {class: "under"}, over.limit_gb_s > 0 ? `The upper bar is what was measured. The lower one is what the same bytes would take at ${number(over.limit_gb_s)} GB/s, which these threads can read from memory: where both are as long, only fewer bytes would help.` : "Measured, by part of the model."),
    el("div", {class: "columns"}, one(over.tokens) ? [mine, theirs] : [theirs, mine],
      amounts("Compiling", `${nUnique} different kernels, made anew for this page; a usual start takes them from the cache.`, over.passes, time),
      amounts("Memory", `A KV cache for ${over.context} tokens; the model file's weights; what kernels hand on to each other.`, Object.entries(over.memory), size)));
}

// ---- kernels ----------------------------------------------------------------------------------------------------------------------

const columns = [["", null], ["part", g => g.parts.join()], ["kernel", g => g.name], ["count", g => -g.count], ["time", g => -g.us], ["share", g => -g.us], ["waiting", g => -g.wait], ["GB/s", g => -(g.us ? g.bytes / g.us : 0)],
  ["GFLOP/s", g => -(g.us ? g.flops / g.us : 0)], ["of limit", g => -(g.us ? g.bytes / g.us : 0)]];
const less = (a, b) => typeof a === "string" ? a.localeCompare(b) : a - b;

function showKernels(main, [sorted]) {
  const all = groups.reduce((s, g) => s + g.us, 0), sum = f => groups.reduce((s, g) => s + g[f], 0), worst = Math.max(...groups.map(g => g.us), 1e-9);
  const at = columns.findIndex(([h]) => h && encodeURIComponent(h) === (sorted ?? "").replace(/^-/, "")), back = (sorted ?? "").startsWith("-"), by = columns[at < 0 ? 4 : at][1];
  const list = [...groups].sort((a, b) => less(by(a), by(b)) * (back ? -1 : 1)), head = ([h], i) => !h ? el("th", {}) : el("th", {class: i < 3 ? null : i > 5 && i < 9 ? "n wide" : "n", "aria-sort": i === (at < 0 ? 4 : at) ? back ? "descending" : "ascending" : null},
    el("button", {onclick: () => go(`kernels/${i === (at < 0 ? 4 : at) && !back ? "-" : ""}${encodeURIComponent(h)}`)}, h, i === (at < 0 ? 4 : at) ? back ? " ▴" : " ▾" : ""));
  const row = g => el("tr", {class: "row", "data-unique": g.u, onclick: () => go(`kernel/${g.u}/source`)},
    el("td", {}, el("span", {class: "share", style: {width: 90 * g.us / worst + "px", background: colour(g.parts[0])}})), el("td", {title: g.roles.join(", ")}, g.parts.join(", ")), el("td", {class: "k"}, g.name), el("td", {class: "n"}, String(g.count)), el("td", {class: "n"}, time(g.us)),
    el("td", {class: "n"}, percent(g.us, over.step_us)), el("td", {class: "n wide"}, time(g.wait)), el("td", {class: "n wide"}, number(g.us ? g.bytes / g.us / 1e3 : 0, 1)), el("td", {class: "n wide"}, number(g.us ? g.flops / g.us / 1e3 : 0, 1)), el("td", {class: "n"}, shareOfLimit(g.bytes, g.us)));
  const foot = (name, count, us, wait, gb, gf, limit) => el("tr", {}, el("td", {}), el("td", {}, name), el("td", {}), el("td", {class: "n"}, count), el("td", {class: "n"}, time(us)), el("td", {class: "n"}, percent(us, over.step_us)),
    el("td", {class: "n wide"}, wait), el("td", {class: "n wide"}, gb), el("td", {class: "n wide"}, gf), el("td", {class: "n"}, limit));
  main.append(el("h2", {}, `${over.dispatches} kernels per ${over.tokens > 1 ? "chunk" : "token"}`),
    el("p", {class: "under"}, `${kernels.length} launches in ${over.dispatches} dispatches, of ${nUnique} different kernels; ${over.graph_ops} operations of the model, ${number(over.graph_ops / over.dispatches)} in each dispatch. ` +
      `${number(over.dispatches / over.layers)} per layer. Compiled for ${over.key}.` + (over.limit_gb_s > 0 ? ` These threads read ${number(over.limit_gb_s)} GB/s from memory.` : "") + " A click on a column sorts."),
    el("div", {class: "scroll"}, el("table", {id: "table"}, el("thead", {}, el("tr", {}, columns.map(head))), el("tbody", {}, list.map(row)),
      el("tfoot", {}, foot("all kernels", String(kernels.length), all, time(sum("wait")), number(sum("bytes") / all / 1e3), number(sum("flops") / all / 1e3), shareOfLimit(sum("bytes"), all)), foot("overhead", "", over.overhead_us, "", "", "", "")))));
  main.update = rest => { clear(main); main.update = null; showKernels(main, rest); };
}

// The smallest of 1, 2, 5, 10, 20, ... that is at least x.
function round125(x) {
  const ten = 10 ** Math.floor(Math.log10(Math.max(x, 1e-3)));
  return ten * [1, 2, 5, 10].find(k => k * ten >= x * .999);
}

// One lane per thread; gaps between bars of a lane are waits for other threads. Zooming changes the time axis only.
function showTimeline(main) {
  const high = 54, gap = 26, top = 30, n = over.lanes.length, wide = Math.max(over.step_us, 1);
  main.append(el("h2", {}, `One ${over.tokens > 1 ? "chunk" : "token"}, ${time(over.step_us)}`), el("p", {class: "under"}, "A lane is a thread, a bar its part of a kernel, a gap time in which it waits for the others. The step shown is the median of those measured. Wheel: zoom; drag: move; double click: all; a click on a bar: what it is."));
  const legend = el("div", {class: "tools"}, [...new Set(kernels.map(k => k.part))].map(part => el("span", {}, el("i", {class: "dot", style: {background: colour(part)}}), part)));
  const pane = el("div", {class: "detail", id: "detail"}, "A click on a bar shows here what it is.");
  const detail = (i, t) => {
    const k = kernels[i], lane = over.lanes[t];
    for (const b of main.querySelectorAll(".bar.on")) b.classList.remove("on");
    for (const b of main.querySelectorAll(`.bar[data-kernel="${i}"]`)) b.classList.add("on");
    clear(pane).append(el("b", {}, el("i", {class: "dot", style: {background: colour(k.part)}}), k.part), el("code", {}, names[k.unique]), el("a", {href: `#kernel/${k.unique}/source`}, "source, rewrites and assembly"),
      el("div", {}, `launch ${k.i} in dispatch ${k.level}; ${time(k.us)} (${percent(k.us, over.step_us)} of the step), of which ${time(k.wait)} waiting; thread ${t} from ${time(lane[2 * i])} to ${time(lane[2 * i + 1])}`),
      el("div", {}, `${size(k.bytes)} moved at ${number(k.us ? k.bytes / k.us / 1e3 : 0)} GB/s (${shareOfLimit(k.bytes, k.us)} of the limit), ${number(k.us ? k.flops / k.us / 1e3 : 0)} GFLOP/s`),
      el("div", {}, "reads " + k.reads.slice(0, 8).join(", ") + (k.reads.length > 8 ? `, and ${k.reads.length - 8} more` : "")));
  };
  const bars = over.lanes.map((lane, t) => svg("g", {class: "lane", "data-thread": t, transform: `translate(0,${top + t * (high + gap)})`}, svg("rect", {class: "lane-back", width: wide, height: high}),
    kernels.map((k, i) => svg("rect", {class: "bar", x: lane[2 * i].toFixed(2), width: Math.max(lane[2 * i + 1] - lane[2 * i], .01).toFixed(2), height: high, style: {fill: colour(k.part)}, "data-kernel": i, onclick: () => detail(i, t),
      ...hover(() => `thread ${t}: ${time(lane[2 * i + 1] - lane[2 * i])} at ${time(lane[2 * i])}\n` + describe(k))}))));
  const step = round125(wide / 12), ticks = Array.from({length: Math.floor(wide / step) + 1}, (_, i) => i * step);
  const axis = ticks.map(x => svg("line", {class: "axis", x1: x, x2: x, y1: top - 8, y2: top + n * (high + gap), "vector-effect": "non-scaling-stroke"}));
  main.append(legend);
  const frame = canvas(main, wide, top + n * (high + gap), [...axis, ...bars], true);
  const picture = frame.querySelector("svg"), labels = svg("g", {}), said = svg("g", {class: "said"});
  picture.append(labels, said, ...over.lanes.map((_, t) => svg("text", {x: 12, y: top + t * (high + gap) - 7, class: "dim"}, "thread " + t)));
  const group = picture.firstChild;
  const relabel = () => {
    const m = /translate\(([-\d.e]+),.*scale\(([-\d.e]+)/.exec(group.getAttribute("transform"));
    if (!m) return;
    const shown = (frame.clientWidth) / +m[2], every = round125(shown / 12), from = Math.max(0, Math.floor(-m[1] / m[2] / every));
    labels.replaceChildren(...Array.from({length: 14}, (_, i) => (from + i) * every).filter(x => x <= wide * 1.001).map(x => svg("text", {class: "dim", x: +m[1] + x * m[2] + 3, y: top + n * (high + gap) + 6}, time(x))));
  };
  // Labels the visible bars that have room.
  const say = () => {
    const LETTER = 6.6, m = /translate\(([-\d.e]+),.*scale\(([-\d.e]+)/.exec(group.getAttribute("transform")), out = [];
    if (!m) return;
    for (const [t, lane] of over.lanes.entries()) for (const [i, k] of kernels.entries()) {
      const from = Math.max(0, +m[1] + lane[2 * i] * m[2]), to = Math.min(frame.clientWidth, +m[1] + lane[2 * i + 1] * m[2]), letters = Math.floor((to - from - 6) / LETTER);
      if (letters >= 4 && out.length < 300) out.push(svg("text", {x: from + 4, y: top + t * (high + gap) + high / 2 + 4}, k.part.length > letters ? k.part.slice(0, letters - 1) + "…" : k.part));
    }
    said.replaceChildren(...out);
  };
  new MutationObserver(say).observe(group, {attributes: true});
  say();
  new MutationObserver(relabel).observe(group, {attributes: true});
  relabel();
  frame.style.height = Math.max(220, top + n * (high + gap) + 24) + "px";
  frame.classList.add("low");
  main.append(pane);
}

// Edges from the last kernel that stores a buffer to the kernels that read it. Kernels with many readers would hide the
// other edges; their edges are `far`, per reader.
function kernelEdges(list) {
  const FEW = 6, writer = new Map(), readers = new Map(), inside = new Set(list.map(k => k.i)), edges = [], far = new Map();
  for (const k of kernels) {
    if (inside.has(k.i)) for (const b of k.readIds) if (writer.has(b)) readers.set(writer.get(b), (readers.get(writer.get(b)) ?? new Set()).add(k.i));
    for (const b of k.writeIds) writer.set(b, k.i);
  }
  for (const [from, to] of readers) for (const k of to) if (inside.has(from) && to.size <= FEW) edges.push([from, k]); else far.set(k, [...far.get(k) ?? [], from]);
  return {edges, far};
}

// Finds repeating layers: from dispatch `from` on, `times` rows of `each` dispatches with equal kernels. null: none.
function repeats() {
  const levels = [];
  for (const k of kernels) (levels[k.level] ??= []).push(`${k.unique} ${k.role}`);
  const signs = levels.map(l => l.sort().join());
  let best = null;
  for (let each = 1; each <= signs.length / 2; each++)
    for (let from = 0, n; from + 2 * each <= signs.length; from += n + 1) {
      for (n = 0; from + n + each < signs.length && signs[from + n] === signs[from + n + each];) n++;
      const times = 1 + Math.floor(n / each);
      if (times > 1 && (!best || each * (times - 1) > best.each * (best.times - 1))) best = {from, each, times};
    }
  return best;
}

// Each kernel once, with the repeating layers drawn as one: kernels of later layers are mapped to those of the first.
function folded(r) {
  const end = r.from + r.each * r.times, once = k => k.level < r.from + r.each || k.level >= end, homes = new Map(), nth = new Map();
  const place = k => { const level = once(k) ? k.level : r.from + (k.level - r.from) % r.each, id = `${k.level} ${k.unique} ${k.role}`, n = nth.get(id) ?? 0; nth.set(id, n + 1); return `${level} ${k.unique} ${k.role} ${n}`; };
  const places = kernels.map(place);
  for (const k of kernels) if (once(k)) homes.set(places[k.i], k.i);
  const {edges, far} = kernelEdges(kernels), seen = new Set();
  const kept = edges.map(([a, b]) => [homes.get(places[a]), homes.get(places[b])]).filter(([a, b]) => kernels[a].level <= kernels[b].level && a !== b && !seen.has(a + " " + b) && seen.add(a + " " + b));
  return {list: kernels.filter(once), edges: kept, far, inside: k => k.level >= r.from && k.level < r.from + r.each};
}

function showKernelGraph(main, [from, count]) {
  const MOST = 80, levels = over.dispatches, first = Math.max(0, Math.min(levels - 1, +from || 0)), many = Math.max(1, Math.min(levels, MOST, count === undefined ? 40 : +count || MOST));      // placing more takes seconds
  const repeat = repeats(), fold = from === undefined && repeat ? folded(repeat) : null, list = fold ? fold.list : kernels.filter(k => k.level >= first && k.level < first + many), slowest = Math.max(...kernels.map(k => k.us), 1e-9);
  const box = (value, onchange) => el("input", {type: "number", min: 0, max: levels, value, style: {width: "80px"}, onchange: e => onchange(+e.target.value)});
  main.append(el("h2", {}, "Kernels and what they hand on"), el("p", {class: "under"}, (fold ? `Layers that repeat are drawn once: what has × ${repeat.times} is there ${repeat.times} times. ` : "") + "An arrow: the second reads what the first stored. Frames are redder the longer a kernel takes. Click one to look into it."),
    el("div", {class: "tools"}, repeat ? el("button", {onclick: () => go(fold ? "graph/0/40" : "graph")}, fold ? "every layer" : "layers once") : null, el("label", {}, "from dispatch ", box(first, v => go(`graph/${v}/${many}`))), el("label", {}, "as many as ", box(many, v => go(`graph/${first}/${v}`))),
      el("button", {onclick: () => go(`graph/${Math.max(0, first - many)}/${many}`)}, "earlier"), el("button", {onclick: () => go(`graph/${Math.min(levels - 1, first + many)}/${many}`)}, "later"), el("button", {onclick: () => go(levels > MOST ? `graph/${first}/${MOST}` : `graph/0/${levels}`)}, levels > MOST ? `${MOST} of ${levels}` : `all ${levels}`)));
  const {edges, far} = fold ?? kernelEdges(list), from_far = k => far.get(k.i)?.map(f => `${kernels[f].level} ${kernels[f].part}`).join(", ");
  const nodes = list.map(k => ({id: k.i, lines: [`${k.level}  ${k.part}${fold?.inside(k) ? `  × ${repeat.times}` : ""}`, `${names[k.unique]}  ${time(k.us)}`, ...(far.has(k.i) ? ["← " + from_far(k).slice(0, 40)] : [])], fill: colour(k.part), href: `kernel/${k.unique}/source`, stroke: `color-mix(in srgb, #e5484d ${Math.round(100 * Math.sqrt(k.us / slowest))}%, var(--line))`,
    tip: describe(k) + "\nreads " + k.reads.slice(0, 12).join(", ") + (k.reads.length > 12 ? ", …" : "")}));
  drawGraph(main, nodes, edges, {focus: (list.find(k => !/rope/.test(k.role)) ?? list[0])?.i});
}

function showMemory(main) {
  const levels = Math.max(over.dispatches, 1), bytes = Math.max(over.arena_bytes, 1), wide = 1400, high = 560;
  const plain = over.temps.reduce((s, t) => s + t[3], 0);
  main.append(el("h2", {}, `Intermediates: ${size(over.arena_bytes)}`), el("p", {class: "under"}, `${over.temps.length} tensors of ${size(plain)} share the arena. Across: dispatches, from first to last use. Down: the address.`));
  const boxes = over.temps.map(([buffer, dtype, elems, n, offset, first, last]) => {
    const maker = kernels.find(k => k.writeIds.includes(buffer));
    return svg("rect", {class: "bar", x: (wide * first / levels).toFixed(2), y: (high * offset / bytes).toFixed(2), width: Math.max(1.5, wide * (last - first + 1) / levels - .5).toFixed(2), height: Math.max(1, high * n / bytes - .4).toFixed(2),
      style: {fill: colour(maker?.part ?? "-")}, onclick: maker ? () => go(`kernel/${maker.unique}/source`) : null, ...hover(`${over.buffers[buffer]}: ${elems} × ${dtype}, ${size(n)} at ${offset}\ndispatch ${first} to ${last}${maker ? "\nmade by " + maker.part + " " + names[maker.unique] : ""}`)});
  });
  const grid = Array.from({length: 11}, (_, i) => [svg("line", {class: "axis", x1: wide * i / 10, x2: wide * i / 10, y1: 0, y2: high}), svg("text", {class: "dim", x: wide * i / 10 + 2, y: high + 16}, String(Math.round(levels * i / 10)))]).flat();
  const marks = Array.from({length: 5}, (_, i) => svg("text", {class: "dim", x: -8, y: high * i / 4 + 4, "text-anchor": "end"}, size(Math.round(bytes * i / 4))));
  canvas(main, wide + 80, high + 30, svg("g", {transform: "translate(76,6)"}, grid, marks, boxes), false, null, true);
}
