// Pictures and sounds of messages: converted when they are attached, stored next to their conversation, sent as content
// parts. A node's file is {name, note, kind, type, medium, thumb}: its bytes are in store.media under the
// conversation's id and `medium`; thumb is a small data: URL.
"use strict";

// Types that the server decodes (docs/pictures.md) are sent unchanged if they are not too large. Others that the
// browser can open are encoded again.
const KINDS = {
  image: { of: "picture", takes: "vision", types: { "image/png": "png", "image/jpeg": "jpeg", "image/webp": "webp" }, read: readPicture },
  audio: { of: "sound", takes: "audio", read: readSound,
           types: { "audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3", "audio/flac": "flac", "audio/x-flac": "flac", "audio/ogg": "ogg", "audio/aiff": "aiff", "audio/x-aiff": "aiff" } },
};
// bytes, pixels; sample rate of models in Hz
const LIMITS = { PICTURE: 6 << 20, PIXELS: 16e6, SOUND: 20 << 20, RATE: 16000, THUMB: 320 };
const LOSSY = { type: "image/jpeg", quality: 0.92 };
let takes = null;                                         // the model's inputs: {vision, audio}; null: no model known

function kindOf(type) { return type.split("/")[0]; }

// The types that can be attached now, in words: "text, PDF files, pictures".
function attachable() { return ["text", "PDF files", ...Object.values(KINDS).filter((k) => takes?.[k.takes]).map((k) => k.of + "s")].join(", "); }

function showTakes(modalities) {
  takes = modalities ?? null;
  const kinds = Object.values(KINDS).filter((k) => takes?.[k.takes]).map((k) => k.of);
  $("attach").textContent = "+ " + [...kinds, "file"].join(", ").replace(/^./, (c) => c.toUpperCase());
  $("attach").title = `Attach ${attachable()}`;
  $("attach").setAttribute("aria-label", $("attach").title);
  showRecording();
}

// ---- reading ----------------------------------------------------------------------------------------------------------------------------

// Returns {name, note, kind, type, thumb, blob}; throws an Error with a message for the user.
async function readMedium(file) {
  const kind = KINDS[kindOf(file.type)];
  if (!kind || (takes && !takes[kind.takes])) throw new Error(`${file.name} cannot be attached. This model takes ${attachable()}.`);
  return { name: file.name, kind: kindOf(file.type), ...await kind.read(file, kind.types[file.type]) };
}

function drawn(bitmap, scale, white) {
  const canvas = element("canvas", { width: Math.max(1, Math.round(bitmap.width * scale)), height: Math.max(1, Math.round(bitmap.height * scale)) }), to = canvas.getContext("2d");
  if (white) { to.fillStyle = "#fff"; to.fillRect(0, 0, canvas.width, canvas.height); }
  to.imageSmoothingQuality = "high";
  to.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return canvas;
}

const encoded = (canvas, type, quality) => new Promise((done) => canvas.toBlob(done, type, quality));

// Encodes without loss, unless that takes too many bytes.
async function encodedAnew(bitmap, type) {
  const scale = Math.min(1, Math.sqrt(LIMITS.PIXELS / (bitmap.width * bitmap.height))), exact = type !== LOSSY.type && await encoded(drawn(bitmap, scale), "image/png");
  return exact && exact.size <= LIMITS.PICTURE ? exact : encoded(drawn(bitmap, scale, true), LOSSY.type, LOSSY.quality);
}

async function readPicture(file, known) {
  let bitmap;
  try { bitmap = await createImageBitmap(file); } catch { throw new Error(`${file.name} is no picture that this browser can open.`); }
  const { width, height } = bitmap, fits = known && file.size <= LIMITS.PICTURE && width * height <= LIMITS.PIXELS;
  const blob = fits ? file : await encodedAnew(bitmap, file.type), thumb = drawn(bitmap, Math.min(1, LIMITS.THUMB / Math.max(width, height)), true).toDataURL(LOSSY.type, 0.8);
  bitmap.close();
  if (!blob) throw new Error(`${file.name} has ${width} x ${height} pixels, too many for this browser.`);
  return { blob, type: blob.type, thumb, note: `${width} x ${height}${width * height > LIMITS.PIXELS ? ", made smaller" : ""}` };
}

// A WAV of one channel with 16 bits.
function wav(buffer) {
  const n = buffer.length, data = new DataView(new ArrayBuffer(44 + 2 * n)), channels = Array.from({ length: buffer.numberOfChannels }, (_, i) => buffer.getChannelData(i));
  const text = (at, s) => [...s].forEach((c, i) => data.setUint8(at + i, c.charCodeAt(0)));
  text(0, "RIFF");
  data.setUint32(4, 36 + 2 * n, true);
  text(8, "WAVEfmt ");
  [[16, 16, 4], [20, 1, 2], [22, 1, 2], [24, buffer.sampleRate, 4], [28, 2 * buffer.sampleRate, 4], [32, 2, 2], [34, 16, 2]].forEach(([at, v, size]) => size === 4 ? data.setUint32(at, v, true) : data.setUint16(at, v, true));
  text(36, "data");
  data.setUint32(40, 2 * n, true);
  for (let i = 0; i < n; i++) {
    const mean = channels.reduce((sum, c) => sum + c[i], 0) / channels.length;
    data.setInt16(44 + 2 * i, Math.max(-32768, Math.min(32767, Math.round(mean * 32768))), true);
  }
  return new Blob([data.buffer], { type: "audio/wav" });
}

async function readSound(file, known) {
  if (known && file.size <= LIMITS.SOUND) return { blob: file, type: file.type, note: "" };
  let buffer;
  try { buffer = await new OfflineAudioContext(1, 1, LIMITS.RATE).decodeAudioData(await file.arrayBuffer()); } catch { throw new Error(`${file.name} is no sound that this browser can open.`); }
  const blob = wav(buffer);
  if (blob.size > LIMITS.SOUND) throw new Error(`${file.name} is too long: ${Math.round(buffer.duration)} s.`);
  return { blob, type: blob.type, note: `${Math.ceil(buffer.duration)} s` };
}

// ---- recording --------------------------------------------------------------------------------------------------------------------------

// Records from the microphone and attaches the sound. If the browser records in a format that the server does not
// decode, readSound converts it to a WAV with the models' sample rate. Recording is lossless if the browser supports
// it. LONGEST: seconds; the server's limit is 600.
const RECORDING = { types: ["audio/webm;codecs=pcm", "audio/webm;codecs=opus", "audio/mp4", "audio/ogg"], BITS: 192000, LONGEST: 595 };
let recording = null;                                     // {recorder, began, clock}

// The microphone needs https or a page from this machine.
function canRecord() { return !!takes?.audio && !!navigator.mediaDevices?.getUserMedia && typeof MediaRecorder === "function"; }

function showRecording() {
  const on = !!recording, s = on ? Math.floor((performance.now() - recording.began) / 1000) : 0, label = on ? "Stop recording" : "Record a sound";
  $("record").hidden = !on && !canRecord();
  $("record").classList.toggle("on", on);
  if (on) $("record").textContent = `■ ${Math.floor(s / 60)}:${String(s % 60).padStart(2, "0")}`;
  else $("record").replaceChildren("● ", element("span", { class: "word" }, "Record"));
  if ($("record").title !== label) { $("record").title = label; $("record").setAttribute("aria-label", label); }
  if (on && s >= RECORDING.LONGEST) recording.recorder.stop();
}

function recorded(parts, type) {
  const now = new Date(), two = (n) => String(n).padStart(2, "0");
  return new File(parts, `recording ${two(now.getHours())}.${two(now.getMinutes())}.${two(now.getSeconds())}`, { type });
}

function startRecording(stream) {
  const type = RECORDING.types.find((t) => MediaRecorder.isTypeSupported(t)), parts = [];
  const recorder = new MediaRecorder(stream, { ...(type && { mimeType: type }), audioBitsPerSecond: RECORDING.BITS });
  recorder.addEventListener("dataavailable", (e) => parts.push(e.data));
  recorder.addEventListener("stop", () => {
    clearInterval(recording.clock);
    recording = null;
    for (const track of stream.getTracks()) track.stop();
    showRecording();
    attach([recorded(parts, recorder.mimeType.split(";")[0])]);
  });
  recorder.start();
  recording = { recorder, began: performance.now(), clock: setInterval(showRecording, 250) };
  showRecording();
}

// Starts or stops recording.
async function record() {
  if (recording) { recording.recorder.stop(); return; }
  $("record").disabled = true;
  notice("");
  let stream = null;
  try { startRecording(stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1 } })); }
  catch (e) {
    for (const track of stream?.getTracks() ?? []) track.stop();
    notice(e.name === "NotAllowedError" ? "This browser does not let the page use a microphone." : e.name === "NotFoundError" ? "There is no microphone." : `Nothing can be recorded: ${e.message}`);
  }
  $("record").disabled = false;
}

// ---- storing and sending ----------------------------------------------------------------------------------------------------------------

// Converts attachments to files of a node; their bytes go into the store.
function storeMedia(conversation, files) {
  return files.map(({ blob, ...f }) => {
    if (!blob) return f;
    const medium = newId();
    store.putMedium(conversation, medium, blob).catch(() => false).then((stored) => { if (!stored) notice(`This browser has no room for ${f.name}: it is lost when the page is left.`); });
    return { ...f, medium };
  });
}

function dataUrl(blob) {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result);
    reader.onerror = () => failed(reader.error);
    reader.readAsDataURL(blob);
  });
}

async function urlOf(conversation, f) {
  const blob = await store.getMedium(conversation, f.medium);
  if (!blob) throw new Error(`${f.name} is no longer stored in this browser. Edit or repeat the message without it.`);
  return dataUrl(new Blob([blob], { type: f.type }));
}

async function partOf(conversation, f) {
  const url = await urlOf(conversation, f);
  if (f.kind === "image") return { type: "image_url", image_url: { url } };
  return { type: "input_audio", input_audio: { data: url.slice(url.indexOf(",") + 1), format: KINDS.audio.types[f.type] ?? "wav" } };
}

// Media come before the text, as in the training of models.
async function contentOf(conversation, node) {
  const media = (node.files ?? []).filter((f) => f.medium), text = wholeText(node);
  if (!media.length) return text;
  return [...await Promise.all(media.map((f) => partOf(conversation, f))), ...(text ? [{ type: "text", text }] : [])];
}

// ---- export and import ------------------------------------------------------------------------------------------------------------------

// A conversation with the bytes of its files.
async function withMedia(c) {
  const nodes = {};
  for (const n of Object.values(c.nodes)) {
    const files = n.files && await Promise.all(n.files.map(async (f) => f.medium ? { name: f.name, data: await urlOf(c.id, f).catch(() => "") } : f));
    nodes[n.id] = files ? { ...n, files } : n;
  }
  return { ...c, nodes };
}

const DATA_URL = /^data:((?:image|audio)\/[\w.+-]+)(?:;[\w.+=-]+)*;base64,/;

// Stores the bytes of imported files, with the checks of attachments.
async function takeMedia(c) {
  for (const n of Object.values(c.nodes)) {
    const files = [];
    for (const f of n.files ?? []) {
      const type = f.data && DATA_URL.exec(f.data);
      try {
        files.push(type ? await KINDS[kindOf(type[1])].read(new File([Uint8Array.from(atob(f.data.slice(type[0].length)), (b) => b.charCodeAt(0))], f.name, { type: type[1] }), KINDS[kindOf(type[1])].types[type[1]]).then((m) => ({ name: f.name, kind: kindOf(type[1]), ...m })) : f);
      } catch (e) { files.push({ name: f.name, text: e.message, note: "lost" }); }
    }
    if (n.files) n.files = storeMedia(c.id, files);
  }
}

// ---- display ----------------------------------------------------------------------------------------------------------------------------

// Shows a picture or sound in full, in a dialog.
async function showWhole(f) {
  let url;
  try { url = f.blob ? await dataUrl(f.blob) : await urlOf(current.id, f); } catch (e) { notice(e.message); return; }
  const box = element("dialog", { class: "whole", "aria-label": f.name, onclick: (e) => { if (e.target.tagName !== "AUDIO") box.close(); }, onclose: () => box.remove() },
    f.kind === "image" ? element("img", { src: url, alt: f.name }) : element("audio", { src: url, controls: true }));
  document.body.append(box);
  box.showModal();
}

function mediumView(f) {
  const label = f.name + (f.note ? `, ${f.note}` : "");
  return element("button", { class: "medium", type: "button", title: label, "aria-label": label, onclick: () => showWhole(f) }, f.thumb ? element("img", { src: f.thumb, alt: "" }) : "♪ " + label);
}
