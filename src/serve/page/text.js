// DOM elements, the clipboard, error texts, and scripts loaded on demand.
"use strict";

const $ = (id) => document.getElementById(id);

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

function button(label, title, run) { return element("button", { class: "plain small", type: "button", title, "aria-label": title, onclick: run }, label); }

async function copyText(text) {
  if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(text);
  const area = element("textarea", { class: "unseen" });  // over http, pages from other machines have no clipboard API
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

// A copy button that confirms the copy.
function copyButton(title, text) {
  const made = button("Copy", title, async () => {
    await copyText(text());
    made.textContent = "Copied";
    setTimeout(() => { made.textContent = "Copy"; }, 1500);
  });
  return made;
}

function download(name, type, parts) {
  const a = element("a", { href: URL.createObjectURL(new Blob([parts].flat(), { type })), download: name });
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 1000);
}

// Replaces the browser's own errors "Failed to fetch", "Load failed" or "NetworkError ...", which do not help.
const unreachable = () => Object.assign(new Error("The server cannot be reached. It may have ended, or the network is down."), { unreachable: true });
async function reach(what) {
  try { return await what; } catch (e) { throw e instanceof TypeError ? unreachable() : e; }
}

function plural(n, one, many = one + "s") { return `${n} ${n === 1 ? one : many}`; }

// Loads a script or style sheet of this server. Resolves to whether the script has run.
const loaded = new Map();
function load(path) {
  if (!loaded.has(path)) loaded.set(path, new Promise((done) => {
    const e = path.endsWith(".css") ? element("link", { rel: "stylesheet", href: path }) : element("script", { src: path });
    e.onload = () => done(true);
    e.onerror = () => { loaded.delete(path); done(false); };
    document.head.append(e);
  }));
  return loaded.get(path);
}
