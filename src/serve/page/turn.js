// An answer being generated: from the request to its last event, across lost connections and page reloads. The stream
// has a name (X-Conversation-Id), and the node records how far it was read, so any page that opens the conversation can
// resume it.
"use strict";

const turns = new Map();                                  // by conversation id
const LIVE = { RETRIES: 6, SAVE_MS: 2000 };

function headers() { return { "Content-Type": "application/json", ...(settings.key ? { Authorization: "Bearer " + settings.key } : {}) }; }

async function refusal(response) {
  const text = await response.text().catch(() => "");
  let body = {};
  try { body = JSON.parse(text); } catch { if (response.headers.get("Content-Type")?.startsWith("text/plain")) body = { error: { message: text.trim() } }; }
  return Object.assign(new Error(body.error?.message || `The server answered ${response.status} ${response.statusText}`), { status: response.status });
}

// The lines of a stream, without line ends.
async function* linesOf(response) {
  const reader = response.body.getReader();
  let rest = new Uint8Array(0);
  for (;;) {
    const { value, done } = await reach(reader.read());
    if (done) return;
    const bytes = new Uint8Array(rest.length + value.length);
    bytes.set(rest);
    bytes.set(value, rest.length);
    let from = 0;
    for (let end; (end = bytes.indexOf(10, from)) >= 0; from = end + 1) yield bytes.subarray(from, end);
    rest = bytes.slice(from);
  }
}

class Turn {
  constructor(conversation, node) {
    this.conversation = conversation;
    this.node = node;
    this.controller = new AbortController();
    this.view = null;                                     // set while the conversation is displayed
    this.status = "";                                     // shown next to the input
    this.events = 0;
    turns.set(conversation.id, this);
  }

  get stream() { return "v1/stream?conv_id=" + encodeURIComponent(this.node.live.id); }

  // body: the request, or a promise of it; null: this page or an earlier one has already started the stream.
  async run(body) {
    const saving = setInterval(() => store.save(this.conversation), LIVE.SAVE_MS), { node } = this;
    showTurn(this);
    try {
      if (body) await this.read(await this.post(await body));
      if (!this.done) await this.resume();
    } catch (e) {
      const why = this.stopped ? "stopped" : e.message;
      if (this.stopped || node.content || node.reasoning || node.calls) node.cut = why;
      else node.error = why;
    }
    clearInterval(saving);
    delete node.live;
    await store.save(this.conversation);
    turns.delete(this.conversation.id);
    endTurn(this);
  }

  async post(body) {
    const { id } = this.node.live = { id: newId(), at: 0 };
    this.began = performance.now();
    await store.save(this.conversation);                  // a page closed now can find the stream again
    const r = await reach(fetch("v1/chat/completions", { method: "POST", headers: { ...headers(), "X-Conversation-Id": id }, body: JSON.stringify(body), signal: this.controller.signal }));
    if (!r.ok) throw await refusal(r);
    return r;
  }

  // A lost connection is not an error yet.
  async read(response) {
    const { live } = this.node, decoder = new TextDecoder();
    try {
      for await (const line of linesOf(response)) {
        const text = decoder.decode(line);
        if (!text.startsWith(":")) live.at += line.length + 1;           // pings do not count
        if (text === "data: [DONE]") this.done = true;
        else if (text.startsWith("data: ")) this.take(JSON.parse(text.slice(6)));
      }
    } catch (e) { if (!e.unreachable) throw e; }
  }

  async resume() {
    const { live } = this.node;
    for (let tries = 0; !this.done; tries++) {
      const before = live.at;
      try {
        const r = await reach(fetch(`${this.stream}&from=${live.at}`, { headers: headers(), signal: this.controller.signal }));
        if (r.status === 404 || r.status === 501) throw new Error("the connection was lost, and the server no longer has the rest");
        if (!r.ok) throw await refusal(r);
        await this.read(r);
      } catch (e) {
        if (!e.unreachable || tries === LIVE.RETRIES) throw e;
      }
      if (this.done) return;
      if (live.at > before) tries = 0;
      if (tries >= LIVE.RETRIES) throw unreachable();
      this.say("The connection is lost. Trying again …");
      await new Promise((again) => setTimeout(again, 500 * 2 ** tries));
      if (this.stopped) throw new Error("stopped");
    }
  }

  stop() {
    this.stopped = true;
    if (this.node.live) fetch(this.stream, { method: "DELETE", headers: headers(), keepalive: true }).catch(() => {});
    this.controller.abort();
  }

  say(text) { this.status = text; showStatus(); }

  progress({ queue_position, queue_wait_ms, processed, total, cache, time_ms }) {
    if (queue_position) {
      const before = queue_position - 1, wait = Math.ceil(queue_wait_ms / 1000);
      this.say(`Waiting: ${before ? `${before} before this one` : "next"}${wait ? `, about ${wait} s` : ""}`);
    } else if (processed < total) {
      const left = time_ms / Math.max(1, processed - cache) * (total - processed) / 1000;
      this.say(`Reading: ${Math.floor(100 * processed / total)} %, ${Math.ceil(left)} s left`);
    } else this.say("");
  }

  take(event) {
    if (event.error) throw new Error(event.error.message);
    const { node, view } = this, choice = event.choices?.[0], delta = choice?.delta ?? {};
    if (event.prompt_progress) this.progress(event.prompt_progress);
    if (delta.reasoning_content) { node.reasoning = (node.reasoning || "") + delta.reasoning_content; view?.reasoning(delta.reasoning_content); }
    if (delta.content) { node.content += delta.content; view?.content(delta.content); }
    for (const c of delta.tool_calls ?? []) {
      const call = (node.calls ??= [])[c.index] ??= { id: "", name: "", arguments: "" };
      call.id ||= c.id ?? "";
      call.name += c.function?.name ?? "";
      call.arguments += c.function?.arguments ?? "";
      view?.calls();
    }
    for (const t of choice?.logprobs?.content ?? []) (node.tokens ??= []).push([t.token, Math.exp(t.logprob), t.top_logprobs.map((o) => [o.token, Math.exp(o.logprob)])]);
    if (delta.content || delta.reasoning_content || delta.tool_calls) this.count();
    if (choice?.finish_reason === "length") node.cut = "cut: the context or the limit is full";
    if (event.timings && choice) this.timings(event.timings);
  }

  count() {
    const now = performance.now();
    this.events++;
    if (!this.first) {
      this.first = now;
      if (this.began) this.node.stats = { first_ms: now - this.began };
    }
    if (now - this.first > 500) this.say(`${(this.events / (now - this.first) * 1000).toFixed(1)} tokens per second`);
  }

  timings(t) {
    this.node.stats = { ...this.node.stats, tokens: t.predicted_n, rate: t.predicted_per_second, ms: t.predicted_ms, prompt: t.cache_n + t.prompt_n, cached: t.cache_n, prompt_ms: t.prompt_ms };
    this.node.used = t.cache_n + t.prompt_n + t.predicted_n;
    if (this.view) drawGauge(this.node.used);
  }
}
