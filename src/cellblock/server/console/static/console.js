// Live output, and lists that follow what happens. Without it, every page still works by reloading.
"use strict";

const MAX_CHARACTERS = 200_000; // of the text of one run in the page
const MAX_FOLLOWED = 2; // runs: browsers open only six connections to a server
const POLL_MILLISECONDS = 3_000;

// Say a short text to people who use a screen reader.
function announce(text) {
  document.getElementById("announcement").textContent = text;
}

// The output of one run, of which only the end is kept if it is long.
class OutputLog {
  constructor(element) {
    this.element = element;
    this.size = element.textContent.length;
  }

  add({ kind, text, replaced }) {
    const isAtEnd =
      this.element.scrollTop + this.element.clientHeight >= this.element.scrollHeight - 8;
    if (kind === "html") this.addDisplay(text, replaced);
    else this.addText(kind, text, replaced);
    while (this.size > MAX_CHARACTERS && this.removeFirst());
    if (isAtEnd) this.element.scrollTop = this.element.scrollHeight;
  }

  // The server has cleaned this HTML: no script, nothing that loads, nothing outside this element.
  addDisplay(html, replaced) {
    const display = document.createElement("div");
    display.className = "display";
    display.innerHTML = html;
    this.insert(display, replaced);
  }

  addText(kind, text, replaced) {
    let last = this.element.lastElementChild;
    if (last?.dataset.kind !== kind || kind === "value" || kind === "note") {
      last = document.createElement("pre");
      last.className = last.dataset.kind = kind;
      this.insert(last, replaced);
    }
    last.append(text);
    this.size += text.length;
  }

  // Add an element, in the place of the text that it replaces: more may be written by now.
  insert(element, replaced) {
    let last = this.element.lastElementChild;
    while (replaced && last?.dataset.kind === "stderr") last = last.previousElementSibling;
    const text = last?.dataset.kind === "stdout" ? last.textContent : "";
    const place = replaced ? findReplaced(text, replaced) : -1;
    if (place < 0) this.element.append(element);
    else {
      const after = text.slice(place + replaced.length);
      last.after(element);
      if (after) {
        const rest = last.cloneNode();
        rest.append(after);
        element.after(rest);
      }
      last.textContent = text.slice(0, place);
      this.size -= replaced.length;
      if (!last.textContent) last.remove();
    }
    // The element begins a line, so the last line of the text before it needs no end.
    const before = element.previousElementSibling;
    if (/^std/.test(before?.dataset.kind) && /[^\n]\n$/.test(before.textContent)) {
      before.textContent = before.textContent.slice(0, -1);
      this.size -= 1;
    }
  }

  // Remove the oldest piece of text. Return false if there is only one left.
  removeFirst() {
    const block = this.element.querySelector("pre[data-kind]");
    if (block === this.element.lastElementChild && block.childNodes.length < 2) return false;
    this.size -= block.firstChild?.textContent.length ?? 0;
    block.firstChild?.remove();
    if (!block.hasChildNodes()) block.remove();
    this.element.dataset.cut = "";
    return true;
  }
}

function findReplaced(text, replaced) {
  if (text.endsWith(replaced)) return text.length - replaced.length;
  return `\n${text}`.indexOf(`\n${replaced}`);
}

// Follow a run to its end.
function follow(article) {
  const log = new OutputLog(article.querySelector("[data-output]"));
  const source = new EventSource(`${article.dataset.events}?after=${article.dataset.after}`);
  const end = (text) => {
    source.close();
    article.querySelectorAll("[data-running]").forEach((element) => removeKeepingFocus(element, article));
    announce(text);
    followNext();
    refreshState();
  };
  source.addEventListener("parts", (event) => {
    JSON.parse(event.data).parts.forEach((part) => log.add(part));
  });
  source.addEventListener("state", (event) => {
    const { status, summary, is_last: isLast } = JSON.parse(event.data);
    article.querySelector("[data-status]").textContent = status;
    article.querySelector("[data-summary]").textContent = summary;
    if (isLast) end(`The run has ended: ${status}.`);
  });
  source.addEventListener("error", () => {
    if (source.readyState === EventSource.CLOSED) end("The output is not followed any more. Reload the page.");
  });
}

// Remove an element. If it has the focus, `next` gets it, so that it is not lost.
function removeKeepingFocus(element, next) {
  const hadFocus = element.contains(document.activeElement);
  element.remove();
  if (hadFocus) next.focus();
}

// Start to follow the oldest runs that have not ended, which are last in the page.
function followNext() {
  const waiting = [...document.querySelectorAll("[data-events]")].reverse();
  const followed = document.querySelectorAll("[data-followed] [data-running]").length;
  for (const article of waiting.slice(0, Math.max(0, MAX_FOLLOWED - followed))) {
    article.dataset.followed = "";
    follow(article);
    article.removeAttribute("data-events");
  }
}

// Return what is at an address of the console; "" if it cannot be had.
async function load(address) {
  try {
    const answer = await fetch(address, { redirect: "error" });
    return answer.ok ? await answer.text() : "";
  } catch {
    return ""; // the server is not there, or the visitor has signed out
  }
}

function parse(text) {
  return new DOMParser().parseFromString(text, "text/html");
}

// Replace what an element shows by the same element of a page, unless somebody works in it.
async function replace(element, address, isWhole) {
  const text = await load(address);
  if (!text) return;
  const page = parse(text);
  const found = isWhole ? page.body : page.getElementById(element.id);
  const isInUse = element.contains(document.activeElement) || element.querySelector("input:valid[type=file]");
  if (found && !isInUse && found.innerHTML.trim() !== element.innerHTML.trim()) {
    element.replaceChildren(...found.childNodes);
  }
}

function refreshState() {
  const state = document.querySelector("[data-state]");
  if (state) replace(state, state.dataset.state, true);
}

// Show the runs that have begun elsewhere, and the ends of those that cannot be followed.
async function refreshRuns(list) {
  const states = Object.entries(JSON.parse((await load(list.dataset.runs)) || "{}"));
  const isNews = ([id, status]) => {
    const article = document.getElementById(`run-${id}`);
    if (!article) return true;
    const isUnfollowed = article.matches("[data-unfollowed]");
    return isUnfollowed && article.querySelector("[data-status]").textContent !== status;
  };
  if (!states.some(isNews)) return;
  const page = parse(await load(location.pathname));
  for (const article of [...page.querySelectorAll("#run-list > article")].reverse()) {
    const shown = document.getElementById(article.id);
    if (!shown) list.prepend(article);
    else if (shown.matches("[data-unfollowed]") && !shown.contains(document.activeElement)) {
      shown.replaceWith(article);
    }
  }
  if (list.querySelector("article")) list.querySelector("[data-empty]")?.remove();
  followNext();
  refreshState();
}

function poll() {
  const element = document.querySelector("[data-poll]");
  const list = document.querySelector("[data-runs]");
  setInterval(() => {
    if (document.hidden) return;
    if (element) replace(element, element.dataset.poll, false);
    if (list) refreshRuns(list);
  }, POLL_MILLISECONDS);
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.id === "code") {
    event.preventDefault();
    event.target.form.requestSubmit();
  }
});

// After a run was started, its output has the focus, so that a screen reader continues there.
function focusTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target?.matches("[tabindex='-1']")) target.focus();
}

focusTarget();
followNext();
poll();
