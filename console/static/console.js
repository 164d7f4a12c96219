// Brings what the stream sends into the page. Panels are HTML that the server has escaped; they are parsed apart, where
// no script runs, and compared node by node, so that focus, selection and what is typed stay.
"use strict";

(() => {
  const body = document.body;
  const live = document.getElementById("live");
  const liveText = document.getElementById("live-text");
  const pause = document.getElementById("pause");
  const SILENT_MS = 12000;
  const RETRY_MS = 3000;
  const TYPING_MS = 150;
  let source = null;
  let paused = false;
  let retry = 0;
  let silent = 0;

  const keyOf = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") || node.id : "");

  function morph(old, wanted) {
    if (old.nodeType !== wanted.nodeType || old.nodeName !== wanted.nodeName) {
      old.replaceWith(wanted);
      return;
    }
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.nodeValue !== wanted.nodeValue) old.nodeValue = wanted.nodeValue;
      return;
    }
    for (const { name } of [...old.attributes]) if (!wanted.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of wanted.attributes) {
      // What is typed is newer than what the server knows.
      if (name === "value" && old === document.activeElement) continue;
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    morphChildren(old, wanted);
  }

  function morphChildren(old, wanted) {
    const keyed = new Map();
    for (const child of old.children) if (keyOf(child)) keyed.set(keyOf(child), child);
    let at = old.firstChild;
    for (const child of [...wanted.childNodes]) {
      const key = keyOf(child);
      const found = key ? keyed.get(key) : at && !keyOf(at) && at.nodeName === child.nodeName ? at : null;
      if (found) {
        keyed.delete(key);
        if (found === at) at = at.nextSibling;
        else old.insertBefore(found, at);
        morph(found, child);
      } else {
        old.insertBefore(child, at);
      }
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  }

  function show(message) {
    const main = document.getElementById("main");
    const focused = document.activeElement;
    for (const panel of main.querySelectorAll(".panel")) {
      if (!message.order.includes(panel.id.replace("panel-", ""))) panel.remove();
    }
    for (const name of message.order) {
      if (!(name in message.panels)) continue;
      const parsed = new DOMParser().parseFromString(message.panels[name], "text/html");
      let panel = document.getElementById(`panel-${name}`);
      if (!panel) {
        panel = document.createElement("section");
        panel.id = `panel-${name}`;
        panel.className = `panel panel-${name}`;
        main.append(panel);
      }
      morphChildren(panel, parsed.body);
    }
    if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
    state("live", message.at);
    clearTimeout(silent);
    silent = setTimeout(lost, SILENT_MS);
  }

  function state(name, text) {
    live.dataset.state = name;
    if (text) liveText.textContent = text;
  }

  function lost() {
    state("lost", `not live since ${liveText.textContent.split(" ").pop()}`);
    connect(RETRY_MS);
  }

  function connect(after = 0) {
    clearTimeout(retry);
    if (source) source.close();
    source = null;
    if (paused) return;
    retry = setTimeout(() => {
      source = new EventSource(body.dataset.stream + location.search);
      source.addEventListener("panels", (event) => show(JSON.parse(event.data)));
      source.addEventListener("error", () => {
        if (live.dataset.state === "live") state("lost", `not live since ${liveText.textContent}`);
        connect(RETRY_MS);
      });
    }, after);
  }

  function go(address, replace) {
    history[replace ? "replaceState" : "pushState"](null, "", address);
    connect();
    if (paused) location.reload();
  }

  function setPaused(value) {
    paused = value;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Continue" : "Pause";
    clearTimeout(silent);
    if (paused) state("still", `held at ${liveText.textContent.split(" ").pop()}`);
    connect();
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-live]");
    const plain = event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
    if (!link || !plain) return;
    event.preventDefault();
    go(link.href, false);
  });

  function filter(form, replace) {
    const fields = new URLSearchParams(new FormData(form));
    if (!fields.get("q")) fields.delete("q");
    go(`${location.pathname}?${fields}`, replace);
  }

  document.addEventListener("submit", (event) => {
    if (!event.target.matches("form[data-live]")) return;
    event.preventDefault();
    filter(event.target, false);
  });

  let typing = 0;
  document.addEventListener("input", (event) => {
    const form = event.target.closest("form[data-live]");
    if (!form) return;
    clearTimeout(typing);
    typing = setTimeout(() => filter(form, true), TYPING_MS);
  });

  document.addEventListener("keydown", (event) => {
    const field = document.getElementById("filter");
    const typed = event.target.matches("input, textarea, select");
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") {
      if (typed) event.target.blur();
      else if (location.pathname !== "/") location.assign("/");
    } else if (!typed && event.key === "/" && field) {
      event.preventDefault();
      field.focus();
      field.select();
    } else if (!typed && event.key === "p") {
      setPaused(!paused);
    }
  });

  window.addEventListener("popstate", () => connect());
  pause.hidden = false;
  pause.addEventListener("click", () => setPaused(!paused));
  connect();
})();
