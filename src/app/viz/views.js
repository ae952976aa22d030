// The views that show the whole model: kernels in a table, the timeline, the graph of kernels, memory.

function showKernels(main) {
  const all = groups.reduce((s, g) => s + g.us, 0), sum = f => groups.reduce((s, g) => s + g[f], 0), worst = Math.max(...groups.map(g => g.us), 1e-9);
  const row = g => el("tr", {class: "row", "data-unique": g.u, onclick: () => go(`kernel/${g.u}/source`)},
    el("td", {}, el("span", {class: "share", style: {width: 90 * g.us / worst + "px", background: colour(g.roles[0])}})), el("td", {}, g.roles.join(", ")), el("td", {class: "k"}, g.name), el("td", {class: "n"}, String(g.count)), el("td", {class: "n"}, time(g.us)),
    el("td", {class: "n"}, percent(g.us, over.step_us)), el("td", {class: "n"}, time(g.wait)), el("td", {class: "n"}, number(g.us ? g.bytes / g.us / 1e3 : 0, 1)), el("td", {class: "n"}, number(g.us ? g.flops / g.us / 1e3 : 0, 1)), el("td", {class: "n"}, shareOfLimit(g.bytes, g.us)));
  main.append(el("h2", {}, `${over.dispatches} kernels per ${over.tokens > 1 ? "chunk" : "token"}`),
    el("p", {class: "under"}, `${kernels.length} launches in ${over.dispatches} dispatches, of ${nUnique} different kernels; ${over.graph_ops} operations of the model, ${number(over.graph_ops / over.dispatches)} in each dispatch. ` +
      `${number(over.dispatches / over.layers)} per layer. Compiled for ${over.key}.` + (over.limit_gb_s > 0 ? ` These threads read ${number(over.limit_gb_s)} GB/s from memory.` : "")),
    el("table", {id: "table"}, el("thead", {}, el("tr", {}, el("th", {}), el("th", {}, "role"), el("th", {}, "kernel"), ["count", "time", "share", "waiting", "GB/s", "GFLOP/s", "of limit"].map(h => el("th", {class: "n"}, h)))),
      el("tbody", {}, groups.map(row), el("tr", {}, el("td", {}), el("td", {}, "all kernels"), el("td", {}), el("td", {class: "n"}, String(kernels.length)), el("td", {class: "n"}, time(all)), el("td", {class: "n"}, percent(all, over.step_us)), el("td", {class: "n"}, time(sum("wait"))),
        el("td", {class: "n"}, number(sum("bytes") / all / 1e3)), el("td", {class: "n"}, number(sum("flops") / all / 1e3)), el("td", {class: "n"}, shareOfLimit(sum("bytes"), all))),
        el("tr", {}, el("td", {}), el("td", {}, "overhead"), el("td", {}), el("td", {}), el("td", {class: "n"}, time(over.overhead_us)), el("td", {class: "n"}, percent(over.overhead_us, over.step_us))))));
}

// The least of 1, 2, 5, 10, 20, ... that is no less than x.
function round125(x) {
  const ten = 10 ** Math.floor(Math.log10(Math.max(x, 1e-3)));
  return ten * [1, 2, 5, 10].find(k => k * ten >= x * .999);
}

// One lane a thread; what is between two bars of a lane is waiting for the others. Bars keep their height while time is zoomed.
function showTimeline(main) {
  const high = 54, gap = 26, top = 30, n = over.lanes.length, wide = Math.max(over.step_us, 1);
  main.append(el("h2", {}, `One ${over.tokens > 1 ? "chunk" : "token"}, ${time(over.step_us)}`), el("p", {class: "under"}, "A lane is a thread, a bar its part of a kernel, a gap time in which it waits for the others. The step shown is the median of those measured. Wheel: zoom; drag: move; double click: all."));
  const legend = el("div", {class: "tools"}, [...new Map(kernels.map(k => [colour(k.role), k.role.replace(/^blk\.\*\./, "")]))].map(([c, role]) => el("span", {}, el("span", {class: "share", style: {width: "10px", background: c}}), " " + role)));
  const bars = over.lanes.map((lane, t) => svg("g", {class: "lane", "data-thread": t, transform: `translate(0,${top + t * (high + gap)})`}, svg("rect", {class: "lane-back", width: wide, height: high}),
    kernels.map((k, i) => svg("rect", {class: "bar", x: lane[2 * i].toFixed(2), width: Math.max(lane[2 * i + 1] - lane[2 * i], .01).toFixed(2), height: high, style: {fill: colour(k.role)}, "data-kernel": i, onclick: () => go(`kernel/${k.unique}/source`),
      ...hover(() => `thread ${t}: ${time(lane[2 * i + 1] - lane[2 * i])} at ${time(lane[2 * i])}\n` + describe(k))}))));
  const step = round125(wide / 12), ticks = Array.from({length: Math.floor(wide / step) + 1}, (_, i) => i * step);
  const axis = ticks.map(x => svg("line", {class: "axis", x1: x, x2: x, y1: top - 8, y2: top + n * (high + gap), "vector-effect": "non-scaling-stroke"}));
  main.append(legend);
  const frame = canvas(main, wide, top + n * (high + gap), [...axis, ...bars], true);
  const picture = frame.querySelector("svg"), labels = svg("g", {});
  picture.append(labels, ...over.lanes.map((_, t) => svg("text", {x: 12, y: top + t * (high + gap) - 7, class: "dim"}, "thread " + t)));
  const group = picture.firstChild;
  const relabel = () => {
    const m = /translate\(([-\d.e]+),.*scale\(([-\d.e]+)/.exec(group.getAttribute("transform"));
    if (!m) return;
    const shown = (frame.clientWidth) / +m[2], every = round125(shown / 12), from = Math.max(0, Math.floor(-m[1] / m[2] / every));
    labels.replaceChildren(...Array.from({length: 14}, (_, i) => (from + i) * every).filter(x => x <= wide * 1.001).map(x => svg("text", {class: "dim", x: +m[1] + x * m[2] + 3, y: top + n * (high + gap) + 6}, time(x))));
  };
  new MutationObserver(relabel).observe(group, {attributes: true});
  relabel();
  frame.style.height = Math.max(220, top + n * (high + gap) + 24) + "px";
  frame.classList.add("low");
}

// Who reads what: the second kernel what the first one stored last. Lines to more than a few readers would hide the others: those are `far`, per reader.
function kernelEdges(list) {
  const FEW = 6, writer = new Map(), readers = new Map(), inside = new Set(list.map(k => k.i)), edges = [], far = new Map();
  for (const k of kernels) {
    if (inside.has(k.i)) for (const b of k.readIds) if (writer.has(b)) readers.set(writer.get(b), (readers.get(writer.get(b)) ?? new Set()).add(k.i));
    for (const b of k.writeIds) writer.set(b, k.i);
  }
  for (const [from, to] of readers) for (const k of to) if (inside.has(from) && to.size <= FEW) edges.push([from, k]); else far.set(k, [...far.get(k) ?? [], from]);
  return {edges, far};
}

function showKernelGraph(main, [from, count]) {
  const MOST = 80, levels = over.dispatches, first = Math.max(0, Math.min(levels - 1, +from || 0)), many = Math.max(1, Math.min(levels, MOST, count === undefined ? 40 : +count || MOST));      // placing more takes seconds
  const list = kernels.filter(k => k.level >= first && k.level < first + many), slowest = Math.max(...kernels.map(k => k.us), 1e-9);
  const box = (value, onchange) => el("input", {type: "number", min: 0, max: levels, value, style: {width: "80px"}, onchange: e => onchange(+e.target.value)});
  main.append(el("h2", {}, "Kernels and what they hand on"), el("p", {class: "under"}, "An arrow: the second reads what the first stored. Frames are redder the longer a kernel takes. Click one to look into it."),
    el("div", {class: "tools"}, el("label", {}, "from dispatch ", box(first, v => go(`graph/${v}/${many}`))), el("label", {}, "as many as ", box(many, v => go(`graph/${first}/${v}`))),
      el("button", {onclick: () => go(`graph/${Math.max(0, first - many)}/${many}`)}, "earlier"), el("button", {onclick: () => go(`graph/${Math.min(levels - 1, first + many)}/${many}`)}, "later"), el("button", {onclick: () => go(levels > MOST ? `graph/${first}/${MOST}` : `graph/0/${levels}`)}, levels > MOST ? `${MOST} of ${levels}` : `all ${levels}`)));
  const {edges, far} = kernelEdges(list), from_far = k => far.get(k.i)?.map(f => `${kernels[f].level} ${kernels[f].role}`).join(", ");
  const nodes = list.map(k => ({id: k.i, lines: [`${k.level}  ${k.role}`, `${names[k.unique]}  ${time(k.us)}`, ...(far.has(k.i) ? ["← " + from_far(k).slice(0, 40)] : [])], fill: colour(k.role), href: `kernel/${k.unique}/source`, stroke: `color-mix(in srgb, #e5484d ${Math.round(100 * Math.sqrt(k.us / slowest))}%, var(--line))`,
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
      style: {fill: colour(maker?.role ?? "-")}, onclick: maker ? () => go(`kernel/${maker.unique}/source`) : null, ...hover(`${over.buffers[buffer]}: ${elems} × ${dtype}, ${size(n)} at ${offset}\ndispatch ${first} to ${last}${maker ? "\nmade by " + maker.role + " " + names[maker.unique] : ""}`)});
  });
  const grid = Array.from({length: 11}, (_, i) => [svg("line", {class: "axis", x1: wide * i / 10, x2: wide * i / 10, y1: 0, y2: high}), svg("text", {class: "dim", x: wide * i / 10 + 2, y: high + 16}, String(Math.round(levels * i / 10)))]).flat();
  const marks = Array.from({length: 5}, (_, i) => svg("text", {class: "dim", x: -8, y: high * i / 4 + 4, "text-anchor": "end"}, size(Math.round(bytes * i / 4))));
  canvas(main, wide + 80, high + 30, svg("g", {transform: "translate(76,6)"}, grid, marks, boxes));
}
