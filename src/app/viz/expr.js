// Expressions of graph nodes. A record (graph/record.h) has one table of nodes for all states of a graph. What a step
// changed is therefore what can be reached from only one of its two nodes: no texts are compared.
const INFIX = {ADD: "+", SUB: "-", MUL: "*", FDIV: "/", IDIV: "//", MOD: "%", CDIV: "/c", CMOD: "%c", AND: "&", OR: "|", XOR: "^", SHL: "<<", SHR: ">>", CMPLT: "<", CMPEQ: "==", CMPNE: "!="};

function label(record, n) {
  const text = record.labels[record.nodes[n][0]], m = /^([A-Z0-9_]+)(?:\.([a-z0-9]+))?(?: (.*))?$/s.exec(text);
  return {text, op: m?.[1] ?? text, dtype: m?.[2] ?? "", arg: (m?.[3] ?? "").replace(/^\[(.*)\]$/s, "$1")};
}
const sources = (record, n) => record.nodes[n].slice(1).map(back => n - back);

function reachable(record, root, stop) {
  const seen = new Set(), todo = [root];
  while (todo.length) {
    const n = todo.pop();
    if (n < 0 || seen.has(n)) continue;
    seen.add(n);
    if (!stop || n === root || !stop(n)) todo.push(...sources(record, n));
  }
  return seen;
}

// The text of a leaf that is clearer inside the expression that uses it; null for other nodes.
function leaf(record, n) {
  const {op, arg} = label(record, n);
  if (op === "CONST") return arg;
  if (op === "RANGE") { const end = label(record, sources(record, n)[0]); return `r${arg.split(" ")[0]}${end.op === "CONST" ? "_" + end.arg : ""}`; }
  if (op === "VAR") return /^"(.*)"/.exec(arg)?.[1] ?? "var";
  if (op === "PARAM") return "p" + arg.replace(/^raw /, "").split(" ")[0];
  if (op === "INVALID") return "invalid";
  return null;
}

// The expression of a node as a list of [text, node], with at most `most` pieces.
function expression(record, root, most = 700) {
  const out = [];
  const put = (text, n) => out.push([text, n]);
  const list = (nodes, depth, n) => nodes.forEach((s, i) => { if (i) put(", ", n); walk(s, depth + 1); });
  function walk(n, depth) {
    if (out.length > most || depth > 60) { put("…", n); return; }
    const small = leaf(record, n);
    if (small !== null) { put(small, n); return; }
    const {op, dtype, arg} = label(record, n), s = sources(record, n);
    if (INFIX[op] && s.length === 2) { put("(", n); walk(s[0], depth + 1); put(` ${INFIX[op]} `, n); walk(s[1], depth + 1); put(")", n); }
    else if (op === "INDEX" && s.length === 2) { walk(s[0], depth + 1); put("[", n); walk(s[1], depth + 1); put("]", n); }
    else if (op === "LOAD" && s.length) { walk(s[0], depth + 1); if (/x\d/.test(dtype)) put("." + dtype, n); }
    else { put(op + (op === "CAST" || op === "BITCAST" ? `<${dtype}>` : arg ? `[${arg}]` : "") + "(", n); list(s, depth, n); put(")", n); }
  }
  walk(root, 0);
  return out;
}

// One side of a step; nodes that the other side lacks are marked.
function showExpression(record, root, other, mark) {
  const there = reachable(record, other);
  const merged = [];
  for (const [text, n] of expression(record, root)) {
    const marked = !there.has(n), last = merged[merged.length - 1];
    if (last && last.marked === marked) last.text += text;
    else merged.push({text, marked});
  }
  return el("div", {class: "expr"}, merged.map(m => m.marked ? el("span", {class: mark}, m.text) : m.text));
}

// Nodes in the order of their numbers (sources first), one per line.
function showNodes(record, nodes, marked, mark, most = 1500) {
  const all = [...nodes].sort((a, b) => a - b);
  return el("div", {class: "code"}, all.slice(0, most).map(n => el("div", {class: marked.has(n) ? mark : null}, el("i", {}, String(n)),
    `${record.labels[record.nodes[n][0]]}  ${sources(record, n).map(s => "%" + s).join(" ")}`)), all.length > most ? el("div", {}, `… and ${all.length - most} more`) : null);
}

// The nodes below a root as a graph; leaves are shown inside the nodes that use them. stop: nodes that are shown
// without their sources.
function nodeGraph(record, root, stop, decorate, most = 420) {
  const nodes = [], edges = [], seen = new Set(), todo = [root];
  while (todo.length && nodes.length < most) {
    const n = todo.shift();
    if (seen.has(n)) continue;
    seen.add(n);
    const {op, dtype, arg} = label(record, n), s = sources(record, n), extra = decorate?.(n), inline = [];
    if (!stop?.(n) || n === root) for (const from of s) {
      const small = op === "RANGE" || from < 0 ? null : leaf(record, from);
      if (small !== null && label(record, from).op !== "PARAM") inline.push(small);
      else if (from >= 0) { edges.push([from, n]); todo.push(from); }
    }
    const short = arg.length > 34 ? arg.slice(0, 33) + "…" : arg;
    nodes.push({id: n, lines: [`${op}${dtype ? " " + dtype : ""}${short ? " " + short : ""}`, ...(inline.length ? [inline.join("  ").slice(0, 48)] : []), ...(extra?.lines ?? [])],
      fill: extra?.fill ?? opColour(op), href: extra?.href, tip: `%${n} ${record.labels[record.nodes[n][0]]}\n${expression(record, n, 60).map(x => x[0]).join("").slice(0, 400)}`});
  }
  const known = new Set(nodes.map(n => n.id));
  const unique = new Map(edges.filter(([a, b]) => known.has(a) && known.has(b)).map(e => [e.join(), e]));
  return {nodes, edges: [...unique.values()], more: todo.filter(n => !seen.has(n)).length};
}
function opColour(op) {
  const kinds = {"#4c8bf5": /^(LOAD|INDEX|GATHER|PARAM|BUFFER|LOCAL)$/, "#e5484d": /^(STORE|ASSIGN|SINK|AFTER)$/, "#a35bd6": /^(REDUCE|REDUCE_AXIS|HREDUCE|ACC|SET|DOT|FMA)$/, "#2f9e6b": /^(RESHAPE|PERMUTE|EXPAND|PAD|SHRINK|FLIP|SPLAT|STACK|EXTRACT|SHUFFLE)$/, "#d18616": /^(RANGE|LANE|IOTA|SPECIAL|WHERE)$/};
  for (const [c, ops] of Object.entries(kinds)) if (ops.test(op)) return c;
  return "#8a94a6";
}
