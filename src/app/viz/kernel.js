// The views of one kernel, and the rewrites of the whole model, which are displayed in an equal form.

const tabs = {source: ["Source and assembly", showSource], rewrites: ["Rewrites", showRewrites], graph: ["Graph", showNodesOfKernel], tensors: ["Tensors", showTensors], program: ["Program", showProgram]};
// The list index that an address gives; an invalid one is the first.
const placeIn = (list, text) => Math.max(0, Math.min(Math.trunc(+text) || 0, list.length - 1));

function showKernel(main, unique, tab, rest) {
  const g = groupOf(unique), shown = Object.hasOwn(tabs, tab) ? tab : "source", data = read(unique + 2), opts = data.record.marks.map(m => m[0]).filter(n => /^[A-Z]+\(/.test(n));
  main.append(el("h2", {id: "kernel"}, g.parts.join(", "), el("small", {}, "  " + g.roles.join(", "))), el("p", {class: "under"}, el("code", {}, g.name), `  ${g.count} launch${g.count > 1 ? "es" : ""}, ${time(g.us)} (${percent(g.us, over.step_us)}), ${number(g.us ? g.bytes / g.us / 1e3 : 0)} GB/s (${shareOfLimit(g.bytes, g.us)} of the limit)`,
      data.streams.length ? `; reads ${data.streams.map(([p, n]) => `p${p} as a stream of ${size(n)}`).join(", ")}` : "", el("br"), "OptOps: ", el("code", {id: "opts"}, opts.join("  ") || "none"),
      data.search ? data.search[0] ? ` found by a search: ${time(data.search[1])} a launch before, ${time(data.search[2])} after` : " of the heuristic; a search found nothing better" : ""),
    el("div", {class: "tabs"}, Object.entries(tabs).map(([t, [title]]) => el("a", {href: `#kernel/${unique}/${t}`, class: t === shown ? "on" : null}, title))));
  tabs[shown][1](main, data, unique, rest);
}

// ---- source and assembly ----------------------------------------------------------------------------------------------------

function colourLine(text, comment) {
  const at = text.indexOf(comment), code = at < 0 ? text : text.slice(0, at), parts = [];
  if (/^\S.*:\s*$/.test(code)) parts.push(el("span", {class: "lb"}, code));
  else for (const piece of code.split(/(\b(?:define|declare|load|store|call|phi|br|ret|icmp|fcmp|select|getelementptr|inbounds|add|fadd|mul|fmul|sub|fsub|zext|sext|trunc|bitcast|shufflevector|extractelement|insertelement|label|void|for|if|int|float|const|static)\b)/)) parts.push(/^[a-z]+$/.test(piece) && parts.length % 2 ? el("span", {class: "kw"}, piece) : piece);
  if (at >= 0) parts.push(el("span", {class: "cm"}, text.slice(at)));
  return parts;
}

// Finds the loops of an assembly text: from a label to the last branch back to it. Returns the depth of each line, and
// the lines of the loop that probably takes most time: the longest of the deepest ones.
function findLoops(lines) {
  const labels = new Map(), loops = new Map();
  lines.forEach((l, i) => {
    const label = /^([.\w$]+):/.exec(l), branch = /^\s+(?:j\w+|b(?:\.\w+)?|cbn?z\s+\w+,|tbn?z\s+\w+,\s*#?\d+,)\s+([.\w$]+)\s*(?:[#;/].*)?$/.exec(l);
    if (label) labels.set(label[1], i);
    if (branch && labels.has(branch[1])) loops.set(labels.get(branch[1]), i);
  });
  const depth = new Array(lines.length).fill(0);
  for (const [from, to] of loops) for (let i = from; i <= to; i++) depth[i]++;
  let hot = null;
  for (const [from, to] of loops) {
    if ([...loops].some(([f, t]) => f > from && t <= to)) continue;            // contains another loop
    const loop = {from, to, depth: depth[from]};
    if (!hot || loop.depth > hot.depth || (loop.depth === hot.depth && to - from > hot.to - hot.from)) hot = loop;
  }
  return {depth, hot};
}

// A lower bound of the cycles of one iteration, for a core that issues six instructions per cycle, of these at most two
// loads, two vector operations and one store.
function estimate(lines) {
  const count = {all: 0, load: 0, store: 0, vector: 0, dot: 0, shuffle: 0};
  for (const l of lines) {
    const m = /^\s+([a-z][\w.]*)\s*(.*)$/.exec(l);
    if (!m || l.trim().startsWith(".")) continue;
    const [, op, args] = m, parts = args.split(/,(?![^(]*\))/), memory = /\(|\[/.test(args) && !op.startsWith("lea"), toMemory = memory && /[([]/.test(parts[parts.length - 1]) && /^v?p?mov|^st/.test(op);
    count.all++;
    if (toMemory) count.store++;
    else if (memory || op.startsWith("ld")) count.load++;
    if (/[xyz]mm|\bv\d+\./.test(args) && !/^v?mov/.test(op)) count.vector++;
    if (/^vpdp|^vfn?madd|^vpmaddu?|^[us]dot|^fml/.test(op)) count.dot++;
    if (/^v?(perm|p?shuf|punpck|pbroadcast|broadcast|palign|insert|extract)/.test(op)) count.shuffle++;
  }
  return {...count, cycles: Math.max(count.load / 2, count.store, count.vector / 2, count.all / 6)};
}

function showSource(main, data) {
  const source = data.source.split("\n"), assembly = data.assembly.split("\n").filter(l => !/^\s+\.(?!LBB)|^\s*#|^\s*$/.test(l) || /^\S/.test(l)), {depth, hot} = findLoops(assembly);
  const pane = (title, note, code) => el("div", {class: "pane"}, el("h4", {}, title, el("small", {}, note)), code);
  const cost = hot && estimate(assembly.slice(hot.from, hot.to + 1));
  const note = cost ? `innermost loop: ${cost.all} instructions, ${cost.load} loads, ${cost.store} stores, ${cost.vector} vector operations (${cost.dot} multiply-adds, ${cost.shuffle} shuffles); at best about ${number(cost.cycles)} cycles a round` : data.assembly ? "no loop" : "none on this device";
  const lineOf = (l, i, comment, more) => el("div", more, el("i", {}, String(i + 1)), colourLine(l, comment));
  const code = el("div", {class: "code", id: "assembly"}, assembly.map((l, i) => el("div", {class: [`d${Math.min(depth[i], 4)}`, hot && i >= hot.from && i <= hot.to ? "hot" : ""].join(" ").trim()}, el("i", {}, String(i + 1)), [0, 1, 2, 3].map(() => el("b")), colourLine(l, "#"))));
  const right = pane("Assembly", note, code);
  main.append(el("div", {class: "split"}, pane("Source", `${source.length} lines`, el("div", {class: "code", id: "source"}, source.map((l, i) => lineOf(l, i, ";")))), right));
  if (hot) { const line = code.children[hot.from]; right.scrollTop = Math.max(0, line.offsetTop - right.offsetTop - 60); }
}

function showProgram(main, data) {
  main.append(el("p", {class: "under"}, "What the renderer was given: one node a line, indented by loops."), el("div", {class: "pane"}, el("div", {class: "code"}, data.program.split("\n").map((l, i) => el("div", {}, el("i", {}, String(i + 1)), l)))));
}

// ---- rewrites ---------------------------------------------------------------------------------------------------------------

// Passes as [{name, root, before, from, to}]: steps from .. to - 1 belong to the pass.
function passesOf(record) {
  let from = 0, before = -1;
  return record.marks.map(([name, root, steps]) => { const p = {name, root, before, from, to: steps}; from = steps; before = root; return p; });
}

function showRewrites(main, data, unique, rest) { showRecord(main, data.record, `kernel/${unique}/rewrites`, rest); }

function showModel(main, rest) {
  main.append(el("h2", {}, "Rewrites of the model"), el("p", {class: "under"}, "What happened to the graph of tensors before it became kernels: integer dot products, and the index arithmetic of scheduling. Everything behind that is with each kernel."));
  showRecord(main, read(1).record, "model", rest);
}

// Left the passes with their steps, right the effect of the chosen one. rest: ["p", number of a pass] or ["s", number
// of a step].
function showRecord(main, record, base, rest) {
  const passes = passesOf(record), left = el("div", {class: "pane steps"}), right = el("div", {class: "pane"}), links = new Map();
  const where = n => { const [, table, line, , file] = record.rules[record.steps[n][0]]; return `${table}:${line}` + (file ? `  ${file}` : ""); };
  // Rules sorted by how often they fired; below each rule the nodes that it matched, with the results.
  const node = n => { const {op, arg} = label(record, n); return arg ? `${op} ${arg}` : op; };
  const fill = (list, p) => {
    if (list.children.length) return;
    const by = new Map();
    for (let s = p.from; s < p.to; s++) by.set(record.steps[s][0], [...by.get(record.steps[s][0]) ?? [], s]);
    for (const [r, steps] of [...by].sort((a, b) => b[1].length - a[1].length)) {
      const inner = el("div");
      for (const s of steps) { const a = el("a", {href: `#${base}/s/${s}`}, el("span", {}, String(s)), `${node(record.steps[s][1])}  →  ${node(record.steps[s][2])}`); links.set(s, a); inner.append(a); }
      list.append(el("details", {class: "fired", open: by.size === 1}, el("summary", {}, el("b", {}, `${steps.length} ×`), el("code", {}, record.rules[r][3])), inner));
    }
  };
  const folds = passes.map((p, i) => {
    const list = el("div"), n = p.to - p.from, changed = p.before !== p.root && p.before >= 0;
    const open = el("details", {ontoggle: () => fill(list, p)}, el("summary", {class: n ? null : "none", onclick: () => go(`${base}/p/${i}`)}, el("b", {}, p.name), el("span", {}, n ? `  ${n} step${n > 1 ? "s" : ""}` : changed ? "  built anew" : i ? "  nothing" : "")), list);
    left.append(open);
    return {open, list};
  });
  left.prepend(el("h4", {}, `${passes.length} passes`, el("small", {}, `${record.steps.length} steps${record.lost ? `, and ${record.lost} that were not kept` : ""}`)));
  const pass = i => {
    const p = passes[i], now = reachable(record, p.root), old = p.before < 0 ? new Set() : reachable(record, p.before);
    const gone = new Set([...old].filter(n => !now.has(n))), fresh = new Set([...now].filter(n => !old.has(n)));
    clear(right).append(el("h4", {}, p.name, el("small", {}, `${now.size} nodes` + (p.before < 0 ? "" : `: ${gone.size} went, ${fresh.size} are new`))));
    if (p.before >= 0 && gone.size) right.append(el("div", {class: "label"}, "gone"), showNodes(record, gone, gone, "del", 400));
    right.append(el("div", {class: "label"}, p.before < 0 ? "the graph" : "now"), showNodes(record, now, p.before < 0 ? new Set() : fresh, "add"));
  };
  const step = n => {
    const [r, from, to] = record.steps[n], [name, , , text] = record.rules[r];
    clear(right).append(el("h4", {}, `step ${n}`, el("small", {id: "where"}, `${name}, ${where(n)}, fires ${record.steps.filter(s => s[0] === r).length} times here`)), el("div", {class: "rule", id: "rule"}, text),
      el("div", {class: "label"}, "before"), showExpression(record, from, to, "del"), el("div", {class: "label"}, "after"), showExpression(record, to, from, "add"));
  };
  main.update = ([kind, n] = []) => {
    for (const a of left.querySelectorAll(".on")) a.classList.remove("on");
    n = +n || 0;
    if (kind === "s" && record.steps[n]) {
      const i = passes.findIndex(p => n >= p.from && n < p.to);
      if (i >= 0) { folds[i].open.open = true; fill(folds[i].list, passes[i]); }
      const a = links.get(n), fired = a?.closest(".fired");
      if (fired) fired.open = true;
      a?.classList.add("on");
      a?.scrollIntoView({block: "nearest"});
      step(n);
    } else pass(placeIn(passes, n));
  };
  main.step = by => { const [kind, n] = location.hash.split("/").slice(-2), at = kind === "s" ? +n + by : by > 0 ? passes[+n || 0]?.from ?? 0 : 0; if (record.steps[at]) go(`${base}/s/${at}`); };
  const split = el("div", {class: "split narrow"}, left, right);
  main.append(split);
  main.update(rest);
}

// ---- graphs -----------------------------------------------------------------------------------------------------------------

function showNodesOfKernel(main, data, unique, [chosen]) {
  const record = data.record, at = placeIn(record.marks, chosen), root = record.marks[at][1];
  const graph = nodeGraph(record, root, null, null);
  main.append(el("div", {class: "tools"}, el("label", {}, "after ", el("select", {onchange: e => go(`kernel/${unique}/graph/${e.target.value}`)}, record.marks.map(([n], i) => el("option", {value: i, selected: i === at}, n)))), `${reachable(record, root).size} nodes` + (graph.more ? `, of which ${graph.nodes.length} are shown` : "")));
  drawGraph(main, graph.nodes, graph.edges, {focus: root});
}

// The part of the tensor graph that became this kernel: from the tensor that it stores to tensors stored by other
// kernels and to buffers.
function showTensors(main, data, unique, [chosen]) {
  const model = read(1), record = model.record, list = groupOf(unique).all, k = list[placeIn(list, chosen)], root = model.tensors[k.i];
  const maker = new Map(model.tensors.map((n, i) => [n, kernels[i]]));
  main.append(el("div", {class: "tools"}, el("label", {}, "launch ", el("select", {onchange: e => go(`kernel/${unique}/tensors/${e.target.value}`)}, list.map((x, i) => el("option", {value: i, selected: x === k}, `${x.i}: dispatch ${x.level}, ${x.part}`)))), "Coloured frames are other kernels; click one to go there."));
  if (root < 0) { main.append(el("p", {}, "Its tensor was not recorded.")); return; }
  const stop = n => maker.has(n) || /^(BUFFER|AFTER)$/.test(label(record, n).op);
  const buffers = new Map(over.ids.map((id, i) => [id, over.buffers[i]]));
  const graph = nodeGraph(record, root, stop, n => {
    const m = maker.get(n), {op, arg} = label(record, n);
    if (m && n !== root) return {lines: [m.part], fill: colour(m.part), href: `kernel/${m.unique}/tensors`};
    return op === "BUFFER" ? {lines: [buffers.get(+arg.replace(/^raw /, "").split(" ")[0]) ?? ""]} : null;
  });
  drawGraph(main, graph.nodes, graph.edges, {focus: root});
}
