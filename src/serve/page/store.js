// Conversations, stored only in this browser. A conversation is a tree of messages, since an edited question or a
// second answer keeps the first one: {id, title, changed, system, nodes: {id: {id, parent, role, content, ...}},
// chosen: {parent: child}}. Heads {id, title, changed} are read at the start and a whole conversation when it is
// opened, so thousands of them cost little.
"use strict";

const store = {
  heads: new Map(),
  held: new Map(),                                        // all conversations, if the browser stores nothing
  unwritten: new Map(),                                   // media not in the database, or not yet
  base: null,

  async open() {
    this.base = await new Promise((done) => {
      let asked;
      try { asked = indexedDB.open("weft", 3); } catch { return done(null); }
      asked.onupgradeneeded = (e) => upgrade(asked.result, asked.transaction, e.oldVersion);
      asked.onsuccess = () => done(asked.result);
      asked.onerror = asked.onblocked = () => done(null);
    });
    if (!this.base) return;
    this.base.onversionchange = () => this.base.close();
    for (const head of await this.read("heads", (s) => s.getAll()) ?? []) this.heads.set(head.id, head);
  },

  read(name, how) {
    const asked = how(this.base.transaction(name).objectStore(name));
    return new Promise((done) => { asked.onsuccess = () => done(asked.result); asked.onerror = () => done(null); });
  },

  // Resolves to whether the write succeeded.
  write(how) {
    if (!this.base) return Promise.resolve(false);
    let t;
    // closed meanwhile
    try { t = this.base.transaction(["conversations", "heads", "media"], "readwrite"); } catch { return Promise.resolve(false); }
    how(t.objectStore("conversations"), t.objectStore("heads"), t.objectStore("media"));
    return new Promise((done) => { t.oncomplete = () => done(true); t.onerror = t.onabort = () => done(false); });
  },

  get(id) { return this.base ? this.read("conversations", (s) => s.get(id)) : Promise.resolve(this.held.get(id)); },

  save(conversation) {
    conversation.changed = Date.now();
    const head = headOf(conversation);
    this.heads.set(head.id, head);
    if (!this.base) this.held.set(head.id, conversation);
    return this.write((all, heads) => { all.put(conversation); heads.put(head); });
  },

  remove(id) {
    this.heads.delete(id);
    this.held.delete(id);
    for (const key of this.unwritten.keys()) if (key.startsWith(id + "/")) this.unwritten.delete(key);
    return this.write((all, heads, media) => { all.delete(id); heads.delete(id); media.delete(IDBKeyRange.bound([id], [id, []])); });
  },

  // Media are stored apart from their conversation, which is written often while an answer grows. They are stored as
  // bytes, since some browsers cannot store a Blob. Resolves to whether the write succeeded; otherwise the medium
  // exists until the page is closed.
  async putMedium(conversation, id, blob) {
    const key = `${conversation}/${id}`;
    this.unwritten.set(key, blob);
    const bytes = await blob.arrayBuffer(), stored = await this.write((all, heads, media) => media.put(bytes, [conversation, id]));
    if (stored) this.unwritten.delete(key);
    return stored;
  },

  async getMedium(conversation, id) { return this.unwritten.get(`${conversation}/${id}`) ?? (this.base && await this.read("media", (s) => s.get([conversation, id]))); },

  sorted() { return [...this.heads.values()].sort((a, b) => b.changed - a.changed); },

  // Ids of conversations that contain all these words; still() is false once the result is no longer needed.
  async search(text, still) {
    const wanted = text.toLowerCase().split(/\s+/).filter(Boolean), found = new Set();
    await this.each((c) => {
      const all = (c.title + "\n" + Object.values(c.nodes).map((n) => n.content).join("\n")).toLowerCase();
      if (wanted.every((w) => all.includes(w))) found.add(c.id);
      return still();
    });
    return found;
  },

  // Calls fn with each conversation until it returns false.
  each(fn) {
    if (!this.base) { [...this.held.values()].every(fn); return Promise.resolve(); }
    return new Promise((done) => {
      const asked = this.base.transaction("conversations").objectStore("conversations").openCursor();
      asked.onerror = done;
      asked.onsuccess = () => { const at = asked.result; if (at && fn(at.value)) at.continue(); else done(); };
    });
  },
};

function headOf(c) { return { id: c.id, title: c.title, changed: c.changed }; }

function upgrade(base, transaction, version) {
  if (version < 1) base.createObjectStore("conversations", { keyPath: "id" });
  if (version < 3) base.createObjectStore("media");
  if (version >= 2) return;
  const heads = base.createObjectStore("heads", { keyPath: "id" });
  transaction.objectStore("conversations").openCursor().onsuccess = (e) => {
    const at = e.target.result;
    if (!at) return;
    heads.put(headOf(at.value));
    at.continue();
  };
}

function newId() { return Array.from(crypto.getRandomValues(new Uint8Array(12)), (b) => b.toString(36).padStart(2, "0")).join(""); }
function newConversation() { return { id: newId(), title: "", changed: Date.now(), system: "", nodes: {}, chosen: {} }; }

// The messages of the chosen branch, from first to last.
function path(conversation) {
  const out = [];
  const seen = new Set();
  for (let at = conversation.chosen[""]; at && conversation.nodes[at] && !seen.has(at); at = conversation.chosen[at]) { seen.add(at); out.push(conversation.nodes[at]); }
  return out;
}
function siblings(conversation, node) { return Object.values(conversation.nodes).filter((n) => n.parent === node.parent); }

// The text that the model gets for a user's message: its text and then its text files.
function wholeText(node) {
  return (node.files ?? []).filter((f) => !f.medium).reduce((text, f) => {
    const fence = "`".repeat(Math.max(3, ...[...f.text.matchAll(/`+/g)].map((m) => m[0].length + 1)));
    return `${text}\n\n${f.name}\n${fence}\n${f.text}\n${fence}`;
  }, node.content);
}
