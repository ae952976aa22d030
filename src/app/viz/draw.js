// Draws graphs as SVG. dagre places the nodes; this file draws them, and moves and zooms the picture. If Weft was built
// without dagre, nodes are in rows by their distance from the inputs.

// A picture in a frame: drag moves it, the wheel zooms, a double click shows everything. draw(g) fills the group and
// returns {width, height}.
function canvas(parent, width, height, content, wide, focus, fits) {
  const view = svg("g", {}, content), picture = svg("svg", {}, view), frame = el("div", {class: "canvas"}, picture);
  let x = 0, y = 0, zoom = 1, drag = null;
  const place = () => view.setAttribute("transform", wide ? `translate(${x},0) scale(${zoom},1)` : `translate(${x},${y}) scale(${zoom})`);
  const all = () => {
    const w = frame.clientWidth, h = frame.clientHeight;
    zoom = wide ? (w - 20) / width : Math.min(1.15, (w - 20) / width, (h - 20) / height);
    x = Math.max(10, (w - width * zoom) / 2);
    y = Math.max(10, (h - height * zoom) / 2);
    place();
  };
  const readable = () => {  // if the picture is too large, shows a part of it in readable size
    all();
    if (wide || fits || zoom >= .8) return;
    const w = frame.clientWidth, h = frame.clientHeight, at = focus ?? {x: width / 2, y: 0};
    zoom = .9;
    x = width * zoom < w ? (w - width * zoom) / 2 : Math.min(10, Math.max(w - 10 - width * zoom, w / 2 - at.x * zoom));
    y = height * zoom < h ? (h - height * zoom) / 2 : Math.min(10, Math.max(h - 10 - height * zoom, h / 2 - at.y * zoom));
    place();
  };
  picture.addEventListener("wheel", e => {
    e.preventDefault();
    const box = picture.getBoundingClientRect(), px = e.clientX - box.left, py = e.clientY - box.top, by = Math.exp(-e.deltaY * .0015), next = Math.min(wide ? 1e4 : 6, Math.max(wide ? 1e-3 : .05, zoom * by));
    x = px - (px - x) * next / zoom;
    y = py - (py - y) * next / zoom;
    zoom = next;
    place();
  }, {passive: false});
  let dragged = false;
  picture.addEventListener("pointerdown", e => { drag = {x: e.clientX - x, y: e.clientY - y}; dragged = false; });
  picture.addEventListener("pointermove", e => {
    if (!(e.buttons & 1)) drag = null;
    if (!drag) return;
    dragged ||= Math.hypot(e.clientX - drag.x - x, e.clientY - drag.y - y) > 3;
    if (!dragged) return;
    x = e.clientX - drag.x;
    y = e.clientY - drag.y;
    place();
  });
  // the end of a drag is not a click
  picture.addEventListener("click", e => { if (dragged) e.stopPropagation(); dragged = false; }, true);
  picture.addEventListener("dblclick", all);
  parent.append(frame);
  readable();
  return frame;
}

// nodes: [{id, lines, fill, href, tip}], edges: [[from, to, label]]. Returns the size of the drawing.
function layout(nodes, edges) {
  const LETTER = 6.7;
  for (const n of nodes) { n.width = 18 + LETTER * Math.max(...n.lines.map(l => l.length)); n.height = 10 + 15 * n.lines.length; }
  if (typeof dagre !== "undefined") {
    const g = new dagre.graphlib.Graph({multigraph: false});
    g.setGraph({rankdir: "TB", nodesep: 16, ranksep: 30, edgesep: 8, marginx: 8, marginy: 8});
    g.setDefaultEdgeLabel(() => ({}));
    for (const n of nodes) g.setNode(String(n.id), {width: n.width, height: n.height});
    for (const [from, to] of edges) g.setEdge(String(from), String(to));
    dagre.layout(g);
    for (const n of nodes) { const at = g.node(String(n.id)); n.x = at.x; n.y = at.y; }
    const lines = edges.map(([from, to]) => g.edge(String(from), String(to)).points);
    return {width: g.graph().width || 10, height: g.graph().height || 10, lines};
  }
  const by = new Map(nodes.map(n => [n.id, n])), rank = new Map(), into = new Map();
  for (const [from, to] of edges) into.set(to, [...(into.get(to) ?? []), from]);
  const rankOf = id => { if (!rank.has(id)) { rank.set(id, 0); rank.set(id, 1 + Math.max(-1, ...(into.get(id) ?? []).map(rankOf))); } return rank.get(id); };
  const filled = [];
  let width = 0;
  for (const n of nodes) {
    const r = rankOf(n.id);
    filled[r] ??= 0;
    n.x = filled[r] + n.width / 2 + 8;
    n.y = 60 * r + 30;
    filled[r] += n.width + 16;
    width = Math.max(width, filled[r]);
  }
  return {width, height: 60 * filled.length, lines: edges.map(([a, b]) => [{x: by.get(a).x, y: by.get(a).y + 12}, {x: by.get(b).x, y: by.get(b).y - 12}])};
}

function curve(p) {
  let d = `M${p[0].x.toFixed(1)},${p[0].y.toFixed(1)}`;
  for (let i = 1; i + 1 < p.length; i++) d += `Q${p[i].x.toFixed(1)},${p[i].y.toFixed(1)} ${((p[i].x + p[i + 1].x) / 2).toFixed(1)},${((p[i].y + p[i + 1].y) / 2).toFixed(1)}`;
  return d + `L${p[p.length - 1].x.toFixed(1)},${p[p.length - 1].y.toFixed(1)}`;
}

// focus: the node in the middle if the graph does not fit.
function drawGraph(parent, nodes, edges, {focus}) {
  const at = layout(nodes, edges);
  const marker = svg("defs", {}, svg("marker", {id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 6, markerHeight: 6, orient: "auto"}, svg("path", {d: "M0,0L8,4L0,8z", fill: "currentColor", opacity: .5})));
  const frame = canvas(parent, at.width, at.height, [marker,
    ...at.lines.map(p => svg("path", {class: "edge", d: curve(p), "marker-end": "url(#arrow)"})),
    ...nodes.map(n => svg("g", {class: n.href ? "node go" : "node", transform: `translate(${(n.x - n.width / 2).toFixed(1)},${(n.y - n.height / 2).toFixed(1)})`, "data-id": n.id, ...hover(n.tip), onclick: n.href ? () => go(n.href) : null},
      svg("rect", {width: n.width.toFixed(1), height: n.height, rx: 5, style: n.stroke ? {stroke: n.stroke, "stroke-width": "2"} : null}),
      n.fill ? svg("rect", {width: 5, height: n.height - 8, x: 4, y: 4, rx: 2, style: {fill: n.fill, stroke: "none"}}) : null,
      n.lines.map((l, i) => svg("text", {x: 13, y: 17 + 15 * i, class: i ? "dim" : null}, l))))], false, nodes.find(n => n.id === focus));
  return frame;
}
