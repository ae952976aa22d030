// The page of weft serve: conversations with the model behind it, by the same /v1/chat/completions that programs use.
"use strict";

const $ = (id) => document.getElementById(id);
const PRESETS = { exact: { temperature: 0 }, balanced: { temperature: 0.7, top_p: 0.9 }, free: { temperature: 1.1, min_p: 0.05, top_p: 1 } };
const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "repeat_penalty", "max_tokens", "seed"];
const settings = JSON.parse(localStorage.getItem("weft-settings") || "{}");
let current = newConversation(), running = null, context = 0, attached = [], ready = false, models = [];

function keepSettings() { localStorage.setItem("weft-settings", JSON.stringify(settings)); }
function notice(text) { $("notice").textContent = text; $("notice").hidden = !text; }
function headers() { return { "Content-Type": "application/json", ...(settings.key ? { Authorization: "Bearer " + settings.key } : {}) }; }

// ---- the server -------------------------------------------------------------------------------------------------------------------------

async function ask(path) {
  const r = await fetch(path, { headers: headers() });
  const body = await r.json().catch(() => ({}));
  if (!r.ok) throw Object.assign(new Error(body.error?.message || r.statusText), { status: r.status });
  return body;
}

// The model that answers from now on. One that is not loaded yet is when it is asked.
function choose() {
  const chosen = models.find((m) => m.id === settings.model);
  context = chosen?.meta.n_ctx || 0;
  $("model").textContent = document.title = chosen?.id || "Weft";
  $("model").hidden = models.length > 1;
  $("models").value = settings.model;
}

// Until the model is there; the page can be used meanwhile.
async function connect() {
  for (;;) {
    try {
      await ask("/health");
      models = (await ask("/v1/models")).data;
      if (!models.some((m) => m.id === settings.model)) settings.model = models[0]?.id;
      $("models").replaceChildren(...models.map((m) => element("option", { value: m.id }, m.id)));
      $("models").hidden = models.length < 2;
      choose();
      ready = true;
      notice("");
      drawGauge();
      return;
    } catch (e) {
      if (e.status === 401) { notice("This server wants a key: it goes into the settings."); return; }
      notice(e.status === 503 ? "The model is loading." : "The server does not answer: " + e.message);
      await new Promise((done) => setTimeout(done, 1000));
    }
  }
}

async function* eventsOf(response) {
  const decoder = new TextDecoder();
  let text = "";
  const reader = response.body.getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += decoder.decode(value, { stream: true });
    const lines = text.split("\n");
    text = lines.pop();
    for (const line of lines) if (line.startsWith("data: ") && line !== "data: [DONE]") yield JSON.parse(line.slice(6));
  }
}

// ---- drawing ----------------------------------------------------------------------------------------------------------------------------

function drawList() {
  const rows = store.sorted($("search").value).slice(0, 500).map((c) => element("div", { class: c.id === current.id ? "chosen" : "" },
    element("button", { class: "name", onclick: () => { show(c); $("side").classList.remove("open"); } }, c.title || "…"),
    element("button", { class: "plain", "aria-label": "Delete " + c.title, title: "Delete", onclick: () => { if (confirm(`Delete “${c.title}”?`)) { store.remove(c.id); if (c.id === current.id) fresh(); drawList(); } } }, "✕")));
  $("list").replaceChildren(...rows);
}

function drawGauge(used = path(current).findLast((n) => n.used)?.used) {
  $("gauge").hidden = !context || !used;
  if (!context || !used) return;
  const n = Math.min(used, context);                 // of the last token there may be nothing kept
  $("used").value = n / context;
  $("used-text").textContent = `${n} of ${context}`;
}

function show(conversation) {
  if (running) running.abort();
  current = conversation;
  $("system").value = current.system;
  draw();
  drawList();
  drawGauge();
}
function fresh() { show(newConversation()); $("input").focus(); }

function button(label, title, run) { return element("button", { class: "plain small", type: "button", title, "aria-label": title, onclick: run }, label); }

function tools(node) {
  const same = siblings(current, node), at = same.indexOf(node), bar = element("div", { class: "tools" });
  const turn = (by) => () => { if (running) return; current.chosen[node.parent] = same[at + by].id; store.save(current); draw(); };
  if (same.length > 1) {
    const back = button("‹", "The one before", turn(-1)), on = button("›", "The next one", turn(1));
    back.disabled = at === 0;
    on.disabled = at === same.length - 1;
    bar.append(back, `${at + 1}/${same.length}`, on);
  }
  bar.append(button("Copy", "Copy this text", () => copyText(node.content)));
  if (node.role === "user") bar.append(button("Edit", "Edit this message; the old one stays", () => edit(node)));
  else bar.append(button("Again", "Another answer; this one stays", () => { if (!running) answer(node.parent); }));
  if (node.role !== "user" && node.cut && node.content) bar.append(button("Continue", "Go on where it was cut", () => { if (!running) answer(node.parent, node); }));
  if (node.rate) bar.append(element("span", {}, ` ${node.count} tokens, ${node.rate.toFixed(1)} per second`));
  if (node.cut) bar.append(element("span", {}, " " + node.cut));
  return bar;
}

// A token and what else could have stood there.
function tokenView(node) {
  return element("p", {}, ...node.tokens.map(([text, p, others]) => element("span", {
    class: "token " + (p > 0.9 ? "" : p > 0.5 ? "p1" : p > 0.2 ? "p2" : p > 0.05 ? "p3" : "p4"),
    title: `${(100 * p).toFixed(1)} %` + others.map(([t, q]) => `\n${(100 * q).toFixed(1)} %  ${JSON.stringify(t)}`).join(""),
  }, text)));
}

function drawNode(node) {
  const body = element("div", { class: "body" }), article = element("article", { class: node.error ? "error" : node.role, "data-id": node.id });
  if (node.role === "user") body.append(node.content);
  else if (node.error) body.append(node.error);
  else if (node.tokens?.length && settings.probabilities) body.append(tokenView(node));
  else { const w = new Writer(body); w.add(node.content); w.end(); }
  if (node.reasoning) article.append(element("details", {}, element("summary", {}, "Reasoning"), element("div", { class: "thought" }, node.reasoning)));
  article.append(body, tools(node));
  return article;
}

function draw() {
  const nodes = path(current);
  $("messages").replaceChildren(...(nodes.length ? nodes.map(drawNode) : [element("p", { class: "empty" }, "Nothing has been said yet. What is said here stays in this browser and in the memory of the server that runs the model.")]));
  $("messages").scrollTop = $("messages").scrollHeight;
}

function edit(node) {
  if (running) return;
  const article = document.querySelector(`article[data-id="${node.id}"]`), area = element("textarea", { rows: Math.min(12, node.content.split("\n").length + 1), "aria-label": "Edit message" });
  area.value = node.content;
  const done = () => { if (area.value.trim()) say(area.value, node.parent); };
  article.replaceChildren(area, element("div", { class: "tools" }, button("Send", "Send it", done), button("Cancel", "Leave it as it was", draw)));
  area.addEventListener("keydown", (e) => { if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) done(); if (e.key === "Escape") draw(); });
  area.focus();
}

// ---- a turn -----------------------------------------------------------------------------------------------------------------------------

function addNode(node) {
  current.nodes[node.id] = node;
  current.chosen[node.parent] = node.id;
  return node;
}

function say(text, parent) {
  const node = addNode({ id: newId(), parent, role: "user", content: text });
  if (!current.title) current.title = text.trim().split("\n")[0].slice(0, 80);
  store.save(current);
  draw();
  drawList();
  answer(node.id);
}

// begun: an answer that is to go on
function request(parent, begun) {
  const messages = [], wanted = { messages, stream: true, return_progress: true, stream_options: { include_usage: true } };
  if (current.system) messages.push({ role: "system", content: current.system });
  for (let at = parent; at; at = current.nodes[at].parent) {
    const n = current.nodes[at];
    if (!n.error) messages.splice(current.system ? 1 : 0, 0, { role: n.role, content: n.content, ...(n.reasoning ? { reasoning_content: n.reasoning } : {}) });
  }
  for (const name of NUMBERS) if (settings[name] != null && settings[name] !== "") wanted[name] = settings[name];
  if (settings.model) wanted.model = settings.model;
  if (begun?.content) messages.push({ role: "assistant", content: begun.content, ...(begun.reasoning ? { reasoning_content: begun.reasoning } : {}) });
  if (settings.probabilities) Object.assign(wanted, { logprobs: true, top_logprobs: 5 });
  return wanted;
}

// What is on the screen of an answer that is being made.
class View {
  constructor(node) {
    this.node = node;
    this.body = element("div", { class: "body" });
    this.article = element("article", { class: "assistant", "data-id": node.id }, this.body);
    this.writer = new Writer(this.body);
    if (node.content) this.writer.add(node.content);
    this.pending = this.spoken = "";
    $("messages").append(this.article);
    this.scroll(true);
  }

  scroll(always) {
    const box = $("messages");
    if (always || box.scrollHeight - box.scrollTop - box.clientHeight < 120) box.scrollTop = box.scrollHeight;
  }

  content(text) {
    this.node.content += text;
    this.pending += text;
    this.spoken += text;
    const end = Math.max(this.spoken.lastIndexOf(". "), this.spoken.lastIndexOf("\n"));
    if (end > 60) { $("spoken").textContent = this.spoken.slice(0, end + 1); this.spoken = this.spoken.slice(end + 1); }
    this.later();
  }

  reasoning(text) {
    if (!this.thought) {
      this.thought = element("div", { class: "thought" });
      this.article.prepend(element("details", {}, element("summary", {}, "Reasoning"), this.thought));
    }
    this.node.reasoning = (this.node.reasoning || "") + text;
    this.thought.append(text);
    this.later();
  }

  // At most once a frame, however many tokens come.
  later() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      if (this.pending) this.writer.add(this.pending);
      this.pending = "";
      this.scroll();
    });
  }
}

function take(event, node, view) {
  if (event.error) throw new Error(event.error.message);
  const choice = event.choices?.[0], progress = event.prompt_progress;
  if (progress?.queue_position) {
    const before = progress.queue_position - 1, wait = Math.ceil(progress.queue_wait_ms / 1000);
    $("rate").textContent = `Waiting: ${before ? `${before} before this one` : "next"}${wait ? `, about ${wait} s` : ""}`;
  } else if (progress && progress.processed < progress.total) {
    const fresh_ = progress.processed - progress.cache, left = progress.time_ms / Math.max(1, fresh_) * (progress.total - progress.processed) / 1000;
    $("rate").textContent = `Reading: ${Math.floor(100 * progress.processed / progress.total)} %, ${Math.ceil(left)} s left`;
  } else if (progress) $("rate").textContent = "";
  if (choice?.delta?.reasoning_content) view.reasoning(choice.delta.reasoning_content);
  if (choice?.delta?.content) view.content(choice.delta.content);
  for (const t of choice?.logprobs?.content ?? []) (node.tokens ??= []).push([t.token, Math.exp(t.logprob), t.top_logprobs.map((o) => [o.token, Math.exp(o.logprob)])]);
  if (choice?.delta?.content || choice?.delta?.reasoning_content) {
    node.count = (node.count || 0) + 1;
    const seconds = (performance.now() - (view.first ??= performance.now())) / 1000;
    if (seconds > 0.5) $("rate").textContent = `${(node.count / seconds).toFixed(1)} tokens per second`;
  }
  if (choice?.finish_reason === "length") node.cut = "· cut: the context or the limit is full";
  if (event.timings && choice) {
    node.rate = event.timings.predicted_per_second;
    node.count = event.timings.predicted_n;
    node.used = event.timings.cache_n + event.timings.prompt_n + event.timings.predicted_n;
    drawGauge(node.used);
  }
}

function setRunning(controller) {
  running = controller;
  $("send").hidden = !!running;
  $("stop").hidden = !running;
  if (!running) $("rate").textContent = "";
}

// A new answer, or one that was cut goes on.
async function answer(parent, begun) {
  const conversation = current, wanted = request(parent, begun), controller = new AbortController();
  const node = begun || addNode({ id: newId(), parent, role: "assistant", content: "" });
  delete node.cut;
  setRunning(controller);
  draw();
  document.querySelector(`article[data-id="${node.id}"]`)?.remove();
  const view = new View(node), saving = setInterval(() => store.save(conversation), 2000);
  try {
    const r = await fetch("/v1/chat/completions", { method: "POST", headers: headers(), body: JSON.stringify(wanted), signal: controller.signal });
    if (!r.ok) throw new Error((await r.json().catch(() => ({}))).error?.message || r.statusText);
    for await (const event of eventsOf(r)) take(event, node, view);
  } catch (e) {
    if (e.name === "AbortError") node.cut = "· stopped";
    else if (node.content) node.cut = "· " + e.message;
    else node.error = e.message;
  }
  clearInterval(saving);
  await store.save(conversation);
  setRunning(null);
  if (conversation !== current) return;
  const box = $("messages"), end = box.scrollHeight - box.scrollTop - box.clientHeight < 120;
  document.querySelector(`article[data-id="${node.id}"]`)?.replaceWith(drawNode(node));
  if (end) box.scrollTop = box.scrollHeight;
  $("spoken").textContent = node.error || view.spoken;
  drawList();
}

// ---- controls ---------------------------------------------------------------------------------------------------------------------------

function drawFiles() {
  $("files").replaceChildren(...attached.map((f, i) => element("span", {}, f.name, button("✕", "Leave out " + f.name, () => { attached.splice(i, 1); drawFiles(); }))));
}

async function attach(files) {
  for (const f of files) {
    if (f.size > 1 << 20) { notice(`${f.name} is larger than a megabyte.`); continue; }
    const text = await f.text();
    if (text.includes("\0")) { notice(`${f.name} is no text.`); continue; }
    attached.push({ name: f.name, text });
  }
  drawFiles();
}

function send() {
  let text = $("input").value;
  if (running || (!text.trim() && !attached.length)) return;
  if (!ready) { connect(); return; }
  for (const f of attached) { const fence = "`".repeat(Math.max(3, ...[...f.text.matchAll(/`+/g)].map((m) => m[0].length + 1))); text += `\n\n${f.name}\n${fence}\n${f.text}\n${fence}`; }
  attached = [];
  drawFiles();
  $("input").value = "";
  grow();
  say(text, path(current).at(-1)?.id ?? "");
}

function grow() { const i = $("input"); i.style.height = "auto"; i.style.height = i.scrollHeight + 2 + "px"; }
const phone = matchMedia("(pointer: coarse)");

function wire() {
  $("form").addEventListener("submit", (e) => { e.preventDefault(); send(); });
  $("input").addEventListener("input", grow);
  $("input").addEventListener("keydown", (e) => { if (e.key === "Enter" && !e.shiftKey && !e.isComposing && !phone.matches) { e.preventDefault(); send(); } });
  $("stop").addEventListener("click", () => running?.abort());
  $("new").addEventListener("click", fresh);
  $("search").addEventListener("input", drawList);
  $("open-side").addEventListener("click", () => $("side").classList.add("open"));
  $("close-side").addEventListener("click", () => $("side").classList.remove("open"));
  $("attach").addEventListener("click", () => $("chosen-files").click());
  $("chosen-files").addEventListener("change", (e) => { attach(e.target.files); e.target.value = ""; });
  document.addEventListener("dragover", (e) => e.preventDefault());
  document.addEventListener("drop", (e) => { e.preventDefault(); attach(e.dataTransfer.files); });
  $("theme").addEventListener("click", () => {
    const dark = getComputedStyle(document.documentElement).getPropertyValue("--back").trim() !== "#fff";
    settings.theme = dark ? "light" : "dark";
    keepSettings();
    theme();
  });
  $("export").addEventListener("click", () => {
    const a = element("a", { href: URL.createObjectURL(new Blob([store.export()], { type: "application/json" })), download: "weft-conversations.json" });
    a.click();
    setTimeout(() => URL.revokeObjectURL(a.href), 10000);
  });
  $("import").addEventListener("click", () => $("chosen-import").click());
  $("chosen-import").addEventListener("change", async (e) => {
    try { store.import(await e.target.files[0].text()); drawList(); } catch (x) { notice("This file cannot be read: " + x.message); }
    e.target.value = "";
  });
  document.addEventListener("keydown", (e) => {
    if (e.key === "Escape" && running && !$("settings").open) running.abort();
    if ((e.ctrlKey || e.metaKey) && e.key.toLowerCase() === "k") { e.preventDefault(); $("side").classList.add("open"); $("search").focus(); }
    if ((e.ctrlKey || e.metaKey) && e.shiftKey && e.key.toLowerCase() === "o") { e.preventDefault(); fresh(); }
  });
  addEventListener("pagehide", () => { if (running) store.save(current); });
  wireSettings();
}

function fillSettings() { for (const name of NUMBERS) $(name).value = settings[name] ?? ""; $("key").value = settings.key ?? ""; $("probabilities").checked = !!settings.probabilities; }

function wireSettings() {
  fillSettings();
  $("open-settings").addEventListener("click", () => $("settings").showModal());
  for (const name of NUMBERS) $(name).addEventListener("change", (e) => { settings[name] = e.target.value === "" ? null : Number(e.target.value); $("preset").value = ""; keepSettings(); });
  $("preset").addEventListener("change", (e) => {
    if (!e.target.value) return;
    for (const name of ["temperature", "top_p", "top_k", "min_p"]) settings[name] = PRESETS[e.target.value][name] ?? null;
    keepSettings();
    fillSettings();
  });
  $("probabilities").addEventListener("change", (e) => { settings.probabilities = e.target.checked; keepSettings(); draw(); });
  $("models").addEventListener("change", (e) => { settings.model = e.target.value; keepSettings(); choose(); drawGauge(); });
  $("key").addEventListener("change", (e) => { settings.key = e.target.value; keepSettings(); connect(); });
  $("system").addEventListener("change", (e) => { current.system = e.target.value; if (path(current).length) store.save(current); });
}

function theme() { document.documentElement.className = settings.theme ?? ""; }

async function start() {
  theme();
  wire();
  await store.open();
  const last = store.sorted("")[0];
  if (last && Date.now() - last.changed < 10 * 60 * 1000) show(last);         // a page that was loaded anew goes on where it was
  else show(current);
  $("input").focus();
  connect();
}
start();
