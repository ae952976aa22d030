// Markdown as DOM nodes, with markdown-it, KaTeX and highlight.js. Text from a model is never parsed as HTML:
// markdown-it makes tokens, elements are created here from tokens, and texts are text nodes. A Writer takes a growing
// text: complete blocks are kept, and only the last one is drawn again.
"use strict";

const md = window.markdownit ? makeMarkdown() : null;      // null: built without the library, so answers are plain text

function makeMarkdown() {
  const made = window.markdownit({ html: false, linkify: true, breaks: true, typographer: false });
  made.linkify.set({ fuzzyLink: false, fuzzyEmail: false });            // setup.py and README.md are not links
  made.core.ruler.before("inline", "bound", bound);
  made.inline.ruler.before("escape", "math", mathInline);
  made.block.ruler.before("fence", "math", mathBlock, { alt: ["paragraph", "reference", "blockquote", "list"] });
  return made;
}

// Some nonsense texts take quadratic time ("[a](b" repeated): paragraphs too long for a reader stay plain.
function bound(state) { for (const t of state.tokens) if (t.type === "inline" && t.content.length > 20000) t.type = "text"; }

// ---- formulas: $x$ as in pandoc, $$x$$, \(x\), \[x\] ------------------------------------------------------------------------------------

const PAIRS = [["$$", "$$", true], ["\\[", "\\]", true], ["\\(", "\\)", false], ["$", "$", false]];

function closing(text, from, close) {
  for (let at = text.indexOf(close, from); at >= 0; at = text.indexOf(close, at + 1)) {
    if (close[0] === "$" && text[at - 1] === "\\") continue;            // \$ is a literal dollar
    if (close === "$" && (/\s/.test(text[at - 1]) || /\d/.test(text[at + 1] ?? "") || text[at + 1] === "$" || text[at - 1] === "$")) continue;
    return at;
  }
  return -1;
}

function mathInline(state, silent) {
  const text = state.src, at = state.pos;
  if (text[at] !== "$" && text[at] !== "\\") return false;
  const pair = PAIRS.find(([open]) => text.startsWith(open, at));
  if (!pair) return false;
  const from = at + pair[0].length, end = closing(text, from, pair[1]);
  const inner = end > from ? text.slice(from, end) : "";
  if (!inner.trim() || (pair[0] === "$" && /^\s/.test(inner))) return false;
  if (!silent) Object.assign(state.push(pair[2] ? "math_block" : "math", "", 0), { content: inner });
  state.pos = end + pair[1].length;
  return true;
}

// A formula on lines of its own; while the answer grows, an unclosed one counts too.
function mathBlock(state, first, last, silent) {
  const line = (n) => state.src.slice(state.bMarks[n] + state.tShift[n], state.eMarks[n]);
  const pair = PAIRS.find(([open, , block]) => block && line(first).startsWith(open));
  if (!pair || state.sCount[first] - state.blkIndent >= 4) return false;
  let n = first, text = line(first).slice(pair[0].length), end = closing(text, 0, pair[1]);
  const lines = [];
  while (end < 0) {
    lines.push(text);
    if (++n >= last || state.sCount[n] < state.blkIndent) break;
    end = closing(text = line(n), 0, pair[1]);
  }
  const open = end < 0, after = open ? "" : text.slice(end + pair[1].length).trim();
  // text follows: a formula within a paragraph
  if (open ? !state.env.grows || n < last || lines[0].trim() : after && !/^[.,;:]$/.test(after)) return false;
  if (!open) lines.push(text.slice(0, end));
  if (!lines.join("").trim()) return false;
  if (silent) return true;
  state.line = open ? n : n + 1;
  Object.assign(state.push("math_block", "", 0), { content: lines.join("\n"), map: [first, state.line], block: true, meta: { open, after } });
  return true;
}

const formulas = new Map();                                // by text: a growing answer draws its last block many times

function drawFormula(to, text, block) {
  const key = (block ? "b" : "i") + text;
  let tree = formulas.get(key);
  if (tree === undefined) {
    try {
      tree = window.katex.__renderToDomTree(text, { displayMode: block, throwOnError: true, strict: "ignore", trust: false, maxSize: 50, maxExpand: 1000 });
      // the page's CSP allows no style attributes; an SVG has its width in its own attribute
      (function unstyle(n) { if (n.attributes?.style) delete n.attributes.style; n.children?.forEach?.(unstyle); })(tree);
    } catch { tree = null; }                               // not a formula: the text is kept
    if (formulas.size > 1000) formulas.clear();
    formulas.set(key, tree);
  }
  to.replaceChildren(tree ? tree.toNode() : element("code", {}, text));
}

function formula(text, block, open) {
  const to = element("span", { class: block ? "formula block" : "formula" }, text);
  if (open || text.length > 10000) return to;
  if (window.katex) drawFormula(to, text, block);
  else Promise.all([load("page/lib/katex.css"), load("page/lib/katex.js")]).then(() => { if (window.katex) drawFormula(to, text, block); });
  return to;
}

// ---- code -------------------------------------------------------------------------------------------------------------------------------

// highlight.js returns HTML: spans with a class, and text with entities for three characters.
function fromMarks(html) {
  const made = document.createDocumentFragment(), stack = [made];
  const plain = (t) => t.replace(/&(lt|gt|quot|#x27|amp);/g, (_, n) => ({ lt: "<", gt: ">", quot: '"', "#x27": "'", amp: "&" })[n]);
  let at = 0;
  for (const m of html.matchAll(/<span class="([\w -]*)">|<\/span>/g)) {
    if (m.index > at) stack.at(-1).append(plain(html.slice(at, m.index)));
    at = m.index + m[0].length;
    if (m[1] == null) { if (stack.length > 1) stack.pop(); continue; }
    const e = element("span", { class: m[1] });
    stack.at(-1).append(e);
    stack.push(e);
  }
  if (at < html.length) stack.at(-1).append(plain(html.slice(at)));
  return made;
}

const OTHER_NAMES = { jsonc: "json", json5: "json", tsx: "typescript", vue: "xml", svelte: "xml", ps1: "powershell", console: "shell", terminal: "shell", jsonl: "json", cuda: "cpp", zig: "rust", hcl: "ini", sol: "javascript", gd: "python" };

async function highlight(code, language) {
  const text = code.textContent;
  language = language.toLowerCase();
  if (!language || text.length > 100000 || ["text", "txt", "plain", "plaintext", "output"].includes(language)) return;
  if (!window.hljs && !await load("page/lib/highlight.js")) return;
  const known = [language, OTHER_NAMES[language]].find((l) => l && window.hljs.getLanguage(l));
  if (!known || code.textContent !== text) return;
  const marked = fromMarks(window.hljs.highlight(known, text, true).value);
  if (marked.textContent === text) code.replaceChildren(marked);
}

// whole: the text is complete.
function codeBlock(language, text, whole = true) {
  const code = element("code", {}, text);
  const copy = copyButton("Copy this code", () => code.textContent);
  if (whole) highlight(code, language);
  return element("div", { class: "code" }, element("div", { class: "row small" }, element("span", {}, language), copy), element("pre", { tabindex: "0" }, code));
}

// ---- tokens to nodes --------------------------------------------------------------------------------------------------------------------

const TAGS = new Set(["p", "ul", "ol", "li", "blockquote", "thead", "tbody", "tr", "th", "td", "em", "strong", "s"]);

function link(address) {
  let url;
  try { url = new URL(address, "invalid:"); } catch { return element("span"); }
  if (!["http:", "https:", "mailto:"].includes(url.protocol)) return element("span");
  return element("a", { href: url.href, rel: "noopener noreferrer nofollow", target: "_blank" });
}

function opened(token) {
  if (token.type === "link_open") return link(token.attrGet("href"));
  if (token.type === "heading_open") return element("h" + Math.min(6, Number(token.tag[1]) + 1));
  if (token.type === "table_open") return element("table");
  if (!TAGS.has(token.tag)) return element("span");
  const align = /text-align:\s*(left|center|right)/.exec(token.attrGet("style") ?? "");
  return element(token.tag, { start: token.tag === "ol" ? token.attrGet("start") : null, class: align?.[1] });
}

// [ ] and [x] at the beginning of a list item.
function task(to, children) {
  const item = to.tagName === "LI" ? to : to.parentNode?.tagName === "LI" && to === to.parentNode.firstChild ? to.parentNode : null;
  const mark = item && !to.childNodes.length && children[0]?.type === "text" && /^\[([ xX])\](?:\s+|$)/.exec(children[0].content);
  if (!mark) return;
  item.classList.add("task");
  to.append(element("input", { type: "checkbox", disabled: true, checked: mark[1] !== " ", "aria-label": mark[1] === " " ? "not done" : "done" }), " ");
  children[0].content = children[0].content.slice(mark[0].length);
}

function leaf(token, to, final) {
  switch (token.type) {
    case "inline":
      task(to, token.children);
      // GFM's rule
      if (/^T[HD]$/.test(to.tagName)) for (const c of token.children) if (c.type === "code_inline") c.content = c.content.replaceAll("\\|", "|");
      build(token.children, to, final);
      break;
    case "softbreak": case "hardbreak": to.append(element("br")); break;
    case "hr": to.append(element("hr")); break;
    case "code_inline": to.append(element("code", {}, token.content)); break;
    case "image": { const a = link(token.attrGet("src") ?? ""); a.append("🖼 " + (token.content || token.attrGet("src"))); to.append(a); break; }
    case "math": to.append(formula(token.content, false)); break;
    case "math_block": to.append(formula(token.content, true, token.meta?.open)); if (token.meta?.after) to.append(token.meta.after); break;
    case "fence": case "code_block": {
      const language = token.info.trim().split(/\s/)[0];
      if (final && /^(math|katex)$/.test(language)) { to.append(formula(token.content, true)); break; }
      to.append(codeBlock(language, token.content, final));
      break;
    }
    default: to.append(token.content);
  }
}

// final: later text cannot change these tokens.
function build(tokens, to, final) {
  const stack = [to];
  for (const token of tokens) {
    const at = stack.at(-1);
    if (token.nesting < 0) { stack.pop(); continue; }
    if (token.nesting === 0) { leaf(token, at, final); continue; }
    const e = token.hidden ? at : opened(token);           // hidden: paragraphs of a tight list
    if (e !== at) at.append(token.type === "table_open" ? element("div", { class: "table", tabindex: "0" }, e) : e);
    stack.push(e);
  }
}

// ---- growing texts ----------------------------------------------------------------------------------------------------------------------

// Splits tokens into top-level blocks: [{line, tokens}].
function blocksOf(tokens) {
  const blocks = [];
  for (const token of tokens) {
    if (token.level === 0 && token.nesting >= 0) blocks.push({ line: token.map[0], tokens: [] });
    blocks.at(-1).tokens.push(token);
  }
  return blocks;
}

class Writer {
  constructor(to) { this.to = to; this.tail = ""; this.nodes = []; this.references = {}; this.due = 0; this.code = null; }

  add(text) { this.tail += text; this.draw(); }

  // Only the last block that has a complete line, and blocks after it, can still change: Markdown decides blocks line
  // by line.
  draw() {
    if (!md) { this.to.classList.add("raw"); this.to.append(this.tail); this.tail = ""; return; }
    const began = performance.now(), env = { grows: true, references: { ...this.references } }, blocks = blocksOf(md.parse(this.tail, env));
    if (!this.grow(blocks)) {
      const whole = this.tail.split("\n").length - 1, open = Math.max(0, blocks.findLastIndex((b) => b.line < whole));
      for (const n of this.nodes) n.remove();
      this.nodes = [];
      blocks.forEach((block, i) => {
        const made = document.createDocumentFragment();
        build(block.tokens, made, i < open);
        if (i >= open) this.nodes.push(...made.childNodes);
        this.to.append(made);
      });
      if (open) this.leave(blocks[open].line, env);
      const only = blocks.length - open === 1 && blocks.at(-1)?.tokens[0];
      this.code = only?.type === "fence" ? { info: only.info, text: only.content, node: this.nodes[0].querySelector("code") } : null;
    }
    const took = performance.now() - began;
    this.due = took > 4 ? performance.now() + 8 * took : 0;  // drawing a long block takes at most a ninth of the time
  }

  // Drops the complete lines before this one. Their link definitions ([name]: address) stay in force; a definition that
  // may still grow does not count yet.
  leave(line, { references }) {
    const lines = this.tail.split("\n"), known = { references: this.references };
    if (Object.keys(references).length > Object.keys(this.references).length) md.parse(lines.slice(0, line).join("\n"), known);
    this.references = known.references;
    this.tail = lines.slice(line).join("\n");
  }

  // Appends to the element of a code fence that has only grown.
  grow(blocks) {
    const only = blocks.length === 1 && blocks[0].tokens[0];
    if (!this.code || !only || only.type !== "fence" || only.info !== this.code.info || !only.content.startsWith(this.code.text)) return false;
    if (only.content.length > this.code.text.length) this.code.node.append(only.content.slice(this.code.text.length));
    this.code.text = only.content;
    return true;
  }
}

function write(to, text) {
  if (md) build(md.parse(text, {}), to, true);
  else { to.classList.add("raw"); to.append(text); }
}
