// Conversations, kept in this browser alone.  A conversation is a tree of messages, since an edited question or a second answer leaves the first one
// where it was: {id, title, changed, system, nodes: {id: {id, parent, role, content, ...}}, chosen: {parent: child}}.
"use strict";

const store = {
  all: new Map(),
  base: null,

  async open() {
    this.base = await new Promise((done) => {
      let asked;
      try { asked = indexedDB.open("weft", 1); } catch { return done(null); }        // a browser that keeps nothing
      asked.onupgradeneeded = () => asked.result.createObjectStore("conversations", { keyPath: "id" });
      asked.onsuccess = () => done(asked.result);
      asked.onerror = asked.onblocked = () => done(null);
    });
    if (!this.base) return;
    const rows = await new Promise((done) => {
      const asked = this.base.transaction("conversations").objectStore("conversations").getAll();
      asked.onsuccess = () => done(asked.result);
      asked.onerror = () => done([]);
    });
    for (const row of rows) this.all.set(row.id, row);
  },

  // Resolves when it is written, or cannot be.
  write(how) {
    if (!this.base) return Promise.resolve();
    const t = this.base.transaction("conversations", "readwrite");
    how(t.objectStore("conversations"));
    return new Promise((done) => { t.oncomplete = t.onerror = t.onabort = done; });
  },

  save(conversation) {
    conversation.changed = Date.now();
    this.all.set(conversation.id, conversation);
    return this.write((t) => t.put(conversation));
  },

  remove(id) {
    this.all.delete(id);
    this.write((t) => t.delete(id));
  },

  sorted(words) {
    const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
    const holds = (c) => { const text = (c.title + "\n" + Object.values(c.nodes).map((n) => n.content).join("\n")).toLowerCase(); return wanted.every((w) => text.includes(w)); };
    return [...this.all.values()].filter((c) => !wanted.length || holds(c)).sort((a, b) => b.changed - a.changed);
  },

  export() { return JSON.stringify({ weft: 1, conversations: [...this.all.values()] }, null, 1); },

  // What others wrote: only what has the right form, under names of our own.
  import(text) {
    const given = JSON.parse(text);
    if (!Array.isArray(given?.conversations)) throw new Error("this file has no conversations");
    let n = 0;
    for (const c of given.conversations) {
      const nodes = Object.create(null);
      for (const m of Object.values(c.nodes ?? {})) {
        if (typeof m.id !== "string" || !["user", "assistant"].includes(m.role) || typeof m.content !== "string") continue;
        nodes[m.id] = { id: m.id, parent: typeof m.parent === "string" ? m.parent : "", role: m.role, content: m.content, reasoning: typeof m.reasoning === "string" ? m.reasoning : "" };
      }
      if (!Object.keys(nodes).length) continue;
      const chosen = {};
      for (const [k, v] of Object.entries(c.chosen ?? {})) if (typeof v === "string" && nodes[v]) chosen[k] = v;
      this.save({ id: newId(), title: String(c.title ?? "").slice(0, 200), system: String(c.system ?? ""), nodes: { ...nodes }, chosen });
      n++;
    }
    return n;
  },
};

function newId() { return Array.from(crypto.getRandomValues(new Uint8Array(9)), (b) => b.toString(36).padStart(2, "0")).join(""); }
function newConversation() { return { id: newId(), title: "", changed: Date.now(), system: "", nodes: {}, chosen: {} }; }

// The messages from the first to the last, by what was chosen at each fork.
function path(conversation) {
  const out = [];
  const seen = new Set();
  for (let at = conversation.chosen[""]; at && conversation.nodes[at] && !seen.has(at); at = conversation.chosen[at]) { seen.add(at); out.push(conversation.nodes[at]); }
  return out;
}
function siblings(conversation, node) { return Object.values(conversation.nodes).filter((n) => n.parent === node.parent); }
