// Displays the messages of a conversation.
"use strict";

// ---- scrolling --------------------------------------------------------------------------------------------------------------------------

// Keeps the end in view if it already is, when content grows, is drawn or gets its size late.
const sight = {
  atEnd: true,
  watch() {
    const box = $("messages");
    new ResizeObserver(() => { if (this.atEnd) box.scrollTop = box.scrollHeight; this.mark(); }).observe($("thread"));
    new ResizeObserver(() => { if (this.atEnd) box.scrollTop = box.scrollHeight; }).observe(box);
    box.addEventListener("scroll", () => { this.atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 60; this.mark(); });
    $("to-end").addEventListener("click", () => this.end());
  },
  mark() { $("to-end").hidden = this.atEnd; },
  end() { this.atEnd = true; $("messages").scrollTop = $("messages").scrollHeight; this.mark(); },
};

// ---- one message ------------------------------------------------------------------------------------------------------------------------

function figures(stats) {
  if (!stats?.tokens) return null;
  const seconds = (ms) => (ms < 9950 ? (ms / 1000).toFixed(1) : Math.round(ms / 1000)) + " s", parts = [plural(stats.tokens, "token")];
  if (stats.rate && stats.tokens > 1) parts.push(`${stats.rate.toFixed(1)} per second`);
  if (stats.first_ms != null) parts.push(`first after ${seconds(stats.first_ms)}`);
  return element("span", { class: "figures", title: `Prompt: ${plural(stats.prompt, "token")}, ${stats.cached} of them known already; read in ${seconds(stats.prompt_ms)}. Answer: ${seconds(stats.ms)}.` }, parts.join(", "));
}

function tools(node) {
  const same = siblings(current, node), at = same.indexOf(node), bar = element("div", { class: "tools" });
  const turn = (by) => () => { if (busy()) return; current.chosen[node.parent] = same[at + by].id; store.save(current); draw(false); };
  if (same.length > 1) {
    const back = button("‹", "The one before", turn(-1)), on = button("›", "The next one", turn(1));
    back.disabled = at === 0;
    on.disabled = at === same.length - 1;
    bar.append(back, `${at + 1}/${same.length}`, on);
  }
  if (node.content) bar.append(copyButton("Copy this text", () => node.content));
  if (node.role === "user") bar.append(button("Edit", "Edit this message; the old one stays", () => edit(node)));
  else bar.append(button(node.error ? "Try again" : "Again", "Another answer; this one stays", () => { if (!busy()) answer(node.parent); }));
  if (node.role === "assistant" && node.cut && node.content) bar.append(button("Continue", "Go on where it was cut", () => { if (!busy()) answer(node.parent, node); }));
  const numbers = figures(node.stats);
  if (numbers) bar.append(numbers);
  if (node.cut) bar.append(element("span", { class: "cut" }, node.cut));
  return bar;
}

// A token's text with its probability and the alternatives.
function tokenView(node) {
  return element("p", {}, ...node.tokens.map(([text, p, others]) => element("span", {
    class: "token " + (p > 0.9 ? "" : p > 0.5 ? "p1" : p > 0.2 ? "p2" : p > 0.05 ? "p3" : "p4"),
    title: `${(100 * p).toFixed(1)} %` + others.map(([t, q]) => `\n${(100 * q).toFixed(1)} %  ${JSON.stringify(t)}`).join(""),
  }, text)));
}

function folded(title, kind, ...inside) { return element("details", { class: kind }, element("summary", {}, title), ...inside); }

function readable(json) { try { return JSON.stringify(JSON.parse(json), null, 2); } catch { return json; } }

function callView(call, whole = true) { return folded(`Tool call: ${call.name}`, "call", codeBlock("json", readable(call.arguments), whole)); }

// Inputs for tool results: this page runs no tools.
function results(node) {
  const areas = node.calls.map((call) => element("textarea", { rows: 2, placeholder: `Result of ${call.name}`, "aria-label": `Result of ${call.name}` }));
  const send = () => {
    if (busy()) return;
    let parent = node.id;
    node.calls.forEach((call, i) => { parent = addNode({ id: newId(), parent, role: "tool", content: areas[i].value, call: call.id, name: call.name }).id; });
    answer(parent);
  };
  return element("div", { class: "results" }, ...areas, element("div", { class: "tools" }, button("Send", "Tell the model these results", send)));
}

function drawNode(node, last) {
  const turn = turns.get(current.id);
  if (turn?.node === node) return new View(turn).article;
  const article = element("article", { class: node.error ? "error" : node.role, "data-id": node.id });
  if (node.role === "tool") { article.append(folded(`Result${node.name ? " of " + node.name : ""}`, "call", codeBlock("", readable(node.content)))); return article; }
  const body = element("div", { class: "body" });
  if (node.role === "user") body.append(node.content);
  else if (node.error) body.append(node.error);
  else if (node.tokens?.length && settings.probabilities) body.append(tokenView(node));
  else write(body, node.content);
  if (node.reasoning) article.append(folded("Reasoning", "reasoning", element("div", { class: "thought" }, node.reasoning)));
  const media = (node.files ?? []).filter((f) => f.medium);
  if (media.length) article.append(element("div", { class: "media" }, ...media.map(mediumView)));
  for (const f of node.files ?? []) if (!f.medium) article.append(folded(f.name + (f.note ? `, ${f.note}` : ""), "file", element("pre", { tabindex: "0" }, f.text)));
  if (node.content || node.error || !(node.calls || media.length)) article.append(body);
  for (const call of node.calls ?? []) if (call) article.append(callView(call));
  if (last && node.calls?.length) article.append(results(node));
  article.append(tools(node));
  return article;
}

// ---- the whole conversation -------------------------------------------------------------------------------------------------------------

let drawing = 0;

// Draws the last messages at once and earlier ones in small groups: a long conversation opens as fast as a short one.
function draw(toEnd = true) {
  const nodes = path(current), own = ++drawing, thread = $("thread"), FIRST = 20, MORE = 10;
  if (!nodes.length) {
    thread.replaceChildren(element("p", { class: "empty" }, "Nothing has been said yet. What is said here stays in this browser and in the memory of the server that runs the model."));
    return;
  }
  let from = toEnd ? Math.max(0, nodes.length - FIRST) : 0;
  thread.replaceChildren(...nodes.slice(from).map((n, i, all) => drawNode(n, i === all.length - 1)));
  if (toEnd) sight.end();
  const more = () => {
    if (own !== drawing || !from) return;
    const until = from;
    from = Math.max(0, from - MORE);
    thread.prepend(...nodes.slice(from, until).map((n) => drawNode(n, false)));
    setTimeout(more);
  };
  setTimeout(more);
}

function articleOf(node) { return $("thread").querySelector(`article[data-id="${node.id}"]`); }

function edit(node) {
  if (busy()) return;
  const area = element("textarea", { rows: Math.min(12, node.content.split("\n").length + 1), "aria-label": "Edit message" });
  area.value = node.content;
  const cancel = () => article.replaceWith(drawNode(node, false));
  const done = () => { if (area.value.trim() || node.files) say(area.value, node.parent, node.files); };
  const article = element("article", { class: "editing", "data-id": node.id }, area, element("div", { class: "tools" }, button("Send", "Send it", done), button("Cancel", "Leave it as it was", cancel)));
  articleOf(node).replaceWith(article);
  area.addEventListener("keydown", (e) => { if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) done(); if (e.key === "Escape") cancel(); });
  area.focus();
}

// The display of an answer while it is generated.
class View {
  constructor(turn) {
    const { node } = turn;
    this.node = node;
    turn.view = this;
    this.body = element("div", { class: "body" });
    this.article = element("article", { class: "assistant", "data-id": node.id }, this.body);
    this.writer = new Writer(this.body);
    this.pending = node.content;
    this.spoken = "";
    if (node.reasoning) this.reasoning(node.reasoning);
    if (node.calls) this.calls();
    this.later();
  }

  content(text) {
    this.pending += text;
    this.spoken += text;
    const end = Math.max(this.spoken.lastIndexOf(". "), this.spoken.lastIndexOf("\n"));
    if (end > 60) { $("spoken").textContent = this.spoken.slice(0, end + 1); this.spoken = this.spoken.slice(end + 1); }
    this.later();
  }

  reasoning(text) {
    if (!this.thought) {
      this.thought = element("div", { class: "thought" });
      this.article.prepend(folded("Reasoning", "reasoning", this.thought));
    }
    this.thought.append(text);
  }

  calls() { this.changed = true; this.later(); }

  // Draws at most once per frame however many tokens arrive, and less often if a block is long.
  later() {
    if (this.frame) return;
    const wait = this.writer.due - performance.now(), run = () => { this.frame = null; this.show(); };
    this.frame = wait > 16 ? setTimeout(run, wait) : requestAnimationFrame(run);
  }

  show() {
    const text = this.pending;
    this.pending = "";
    if (text) this.writer.add(text);
    if (!this.changed) return;
    this.changed = false;
    const open = [...this.article.querySelectorAll("details.call")].map((d) => { const was = d.open; d.remove(); return was; });
    this.node.calls.forEach((call, i) => { const made = callView(call, false); made.open = !!open[i]; this.article.append(made); });
  }
}
