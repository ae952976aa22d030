// Markdown as nodes of the document.  Nothing that a model writes is ever parsed as HTML: elements are made here, and texts are text nodes.
// A Writer takes a text that grows; what is complete stays as it is, and only the last block is made anew.
"use strict";

function element(name, attributes, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) e.addEventListener(key.slice(2), value);
    else if (value === true) e.setAttribute(key, "");
    else if (value !== false && value != null) e.setAttribute(key, value);
  }
  e.append(...children.filter((c) => c != null));
  return e;
}

const INLINE = /(`+)([\s\S]*?[^`])\1(?!`)|\*\*([^\s*](?:[\s\S]*?[^\s*])?)\*\*|__([^\s_](?:[^_]*[^\s_])?)__|\*([^\s*](?:[^*]*[^\s*])?)\*|~~([^~]+)~~|\[([^\]\n]+)\]\(([^\s()]+)\)|(https?:\/\/[^\s<>()]*[^\s<>().,;:!?'"\]])/;

function link(text, address) {
  let url;
  try { url = new URL(address, "invalid:"); } catch { return text; }
  if (!["http:", "https:", "mailto:"].includes(url.protocol)) return text;
  return element("a", { href: url.href, rel: "noopener noreferrer nofollow", target: "_blank" }, text);
}

function inline(to, text, depth = 0) {
  while (text) {
    const m = depth < 8 && text.length < 20000 ? INLINE.exec(text) : null;
    if (!m) { to.append(text); return; }
    if (m.index) to.append(text.slice(0, m.index));
    text = text.slice(m.index + m[0].length);
    const wrap = (name, inner) => { const e = element(name); inline(e, inner, depth + 1); to.append(e); };
    if (m[2] != null) to.append(element("code", {}, m[2].replace(/^ (.*) $/, "$1")));
    else if (m[3] ?? m[4]) wrap("strong", m[3] ?? m[4]);
    else if (m[5]) wrap("em", m[5]);
    else if (m[6]) wrap("del", m[6]);
    else if (m[7]) to.append(link(m[7], m[8]));
    else to.append(link(m[9], m[9]));
  }
}

async function copyText(text) {
  if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(text);
  const area = element("textarea", { class: "unseen" });                // where a page has no clipboard of its own
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

function codeBlock(language) {
  const code = element("code");
  const button = element("button", { class: "plain small", type: "button", onclick: async () => {
    await copyText(code.textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  } }, "Copy");
  return [element("div", { class: "code" }, element("div", { class: "row small" }, element("span", {}, language), button), element("pre", { tabindex: "0" }, code)), code];
}

const FENCE = /^ {0,3}(```+|~~~+)\s*([^\s`]*)[^`]*$/, ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/, RULE = /^ {0,3}([-*_])(\s*\1){2,}\s*$/;
const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((c) => c.trim());

function table(lines) {
  const row = (name, line) => { const r = element("tr"); for (const c of cells(line)) { const cell = element(name); inline(cell, c); r.append(cell); } return r; };
  return element("div", { class: "table" }, element("table", {}, element("thead", {}, row("th", lines[0])), element("tbody", {}, ...lines.slice(2).map((l) => row("td", l)))));
}

function list(lines) {
  const root = element(/^\s*\d/.test(lines[0]) ? "ol" : "ul");
  const start = parseInt(lines[0], 10);
  if (start > 1) root.setAttribute("start", start);
  const stack = [{ indent: ITEM.exec(lines[0])[1].length, list: root, item: null }];
  for (const line of lines) {
    const m = ITEM.exec(line);
    let top = stack[stack.length - 1];
    if (!m) { if (top.item) inline(top.item, "\n" + line.trim()); continue; }
    const indent = m[1].length;
    while (stack.length > 1 && indent < top.indent) { stack.pop(); top = stack[stack.length - 1]; }
    if (indent > top.indent + 1 && top.item && stack.length < 8) {
      const inner = element(/\d/.test(m[2]) ? "ol" : "ul");
      top.item.append(inner);
      stack.push(top = { indent, list: inner, item: null });
    }
    top.item = element("li");
    inline(top.item, m[3]);
    top.list.append(top.item);
  }
  return root;
}

function block(lines) {
  const heading = /^(#{1,6})\s+(.*)$/.exec(lines[0]);
  if (heading) { const h = element("h" + Math.min(4, heading[1].length + 1)); inline(h, heading[2].replace(/\s#+\s*$/, "")); return h; }
  if (RULE.test(lines[0])) return element("hr");
  if (ITEM.test(lines[0])) return list(lines);
  if (lines[0].startsWith(">")) { const q = element("blockquote"); inline(q, lines.map((l) => l.replace(/^>\s?/, "")).join("\n")); return q; }
  if (lines.length > 1 && lines[0].includes("|") && /^[\s|:-]*-[\s|:-]*$/.test(lines[1])) return table(lines);
  const p = element("p");
  lines.forEach((l, i) => { if (i) p.append(element("br")); inline(p, l); });
  return p;
}

// Where a line begins something else than what the lines before it are.
function begins(line, lines) {
  if (!lines.length) return false;
  if (/^#{1,6}\s/.test(lines[0]) || RULE.test(lines[0]) || /^#{1,6}\s/.test(line)) return true;
  return ITEM.test(line) !== ITEM.test(lines[0]) && !(ITEM.test(lines[0]) && /^\s/.test(line)) || line.startsWith(">") !== lines[0].startsWith(">");
}

class Writer {
  constructor(to) { this.to = to; this.lines = []; this.rest = ""; this.open = null; this.fence = null; this.code = null; }

  // What is under way is drawn once more; what was complete is not touched.
  add(text) {
    const parts = (this.rest + text).split("\n");
    this.rest = parts.pop();
    for (const line of parts) this.line(line);
    this.draw();
  }

  line(line) {
    if (this.fence) {
      const end = line.trim();
      if (end.length >= this.fence.length && end === this.fence[0].repeat(end.length)) { this.flushCode(true); this.fence = this.code = null; this.open = null; }
      else this.ready = (this.ready ?? "") + line + "\n";
      return;
    }
    const fence = FENCE.exec(line);
    if (fence) {
      this.finish();
      this.fence = fence[1];
      const [box, code] = codeBlock(fence[2]);
      this.code = code;
      this.to.append(box);
    } else if (!line.trim()) this.finish();
    else {
      if (begins(line, this.lines)) this.finish();
      this.lines.push(line);
    }
  }

  flushCode() { if (this.ready) { this.code.append(this.ready); this.ready = ""; } }

  draw() {
    if (this.fence) { this.flushCode(); return; }
    const lines = this.rest.trim() ? [...this.lines, this.rest] : this.lines;
    if (!lines.length || /^\s*(`{1,3}|~{1,3})$/.test(this.rest)) return;
    const made = block(lines);
    if (this.open) this.open.replaceWith(made);
    else this.to.append(made);
    this.open = made;
  }

  finish() {
    if (this.lines.length) { const rest = this.rest; this.rest = ""; this.draw(); this.rest = rest; }
    this.lines = [];
    this.open = null;
  }

  end() {
    if (this.rest) { const last = this.rest; this.rest = ""; this.line(last); }
    if (this.fence) this.flushCode();
    else this.finish();
  }
}
