// The code field as an editor. Without it, the field is a plain text area.
import {
  acceptCompletion, autocompletion, closeBrackets, closeBracketsKeymap, completeAnyWord, startCompletion,
} from "./codemirror/@codemirror/autocomplete.js";
import { defaultKeymap, history, historyKeymap, indentLess, indentMore } from "./codemirror/@codemirror/commands.js";
import { globalCompletion, localCompletionSource, python } from "./codemirror/@codemirror/lang-python.js";
import {
  bracketMatching, HighlightStyle, indentOnInput, indentUnit, StreamLanguage, syntaxHighlighting,
} from "./codemirror/@codemirror/language.js";
import { javascript } from "./codemirror/@codemirror/legacy-modes/mode/javascript.js";
import { powerShell } from "./codemirror/@codemirror/legacy-modes/mode/powershell.js";
import { shell } from "./codemirror/@codemirror/legacy-modes/mode/shell.js";
import { Compartment, EditorState, Prec } from "./codemirror/@codemirror/state.js";
import {
  drawSelection, EditorView, highlightActiveLine, highlightActiveLineGutter, highlightSpecialChars, keymap,
  lineNumbers,
} from "./codemirror/@codemirror/view.js";
import { tags } from "./codemirror/@lezer/highlight.js";

const HINT = "Ctrl+Enter runs the code. Tab indents and completes. Press Esc, then Tab to leave the field.";
const INDENT = 4; // spaces
const LANGUAGES = {
  python: python(),
  sh: StreamLanguage.define(shell),
  bash: StreamLanguage.define(shell),
  pwsh: StreamLanguage.define(powerShell),
  javascript: StreamLanguage.define(javascript),
};

// The colours are those of the style sheet, for light and dark.
const COLOURS = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.modifier, tags.self, tags.null, tags.bool], color: "var(--code-keyword)" },
  { tag: [tags.string, tags.special(tags.string), tags.regexp], color: "var(--code-string)" },
  { tag: [tags.number, tags.escape], color: "var(--code-number)" },
  { tag: [tags.definition(tags.variableName), tags.function(tags.variableName), tags.className], color: "var(--code-name)" },
  { tag: [tags.comment, tags.meta], color: "var(--muted)" },
]);
const THEME = EditorView.theme({
  "&": { border: "1px solid var(--control)", borderRadius: "4px", background: "var(--page)", color: "var(--text)" },
  "&.cm-focused": { outline: "3px solid var(--accent)", outlineOffset: "2px" },
  ".cm-scroller": { font: "0.95rem/1.45 var(--mono)", minHeight: "14rem", maxHeight: "70vh", overflow: "auto" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": { background: "var(--surface)", color: "var(--muted)", border: "0" },
  ".cm-activeLine, .cm-activeLineGutter": { background: "var(--code-line)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    background: "var(--code-selection)",
  },
  "&.cm-focused .cm-matchingBracket": { background: "var(--code-selection)" },
  ".cm-tooltip": { background: "var(--page)", border: "1px solid var(--control)" },
  ".cm-tooltip-autocomplete > ul > li[aria-selected]": { background: "var(--accent)", color: "var(--on-accent)" },
});

// Return what the live session offers at the cursor; null if there is none, or it is not asked.
async function askSession(context, address) {
  const isWanted = context.explicit || context.matchBefore(/[\p{L}_][\p{L}\d_]*\.?$/u);
  if (!address || !isWanted) return null;
  const text = context.state.doc.toString();
  // Python counts characters, and scripts count those beyond U+FFFF twice.
  const cursor = [...text.slice(0, context.pos)].length;
  try {
    const body = new URLSearchParams({ code: text, cursor });
    const answer = await fetch(address, { method: "POST", body, redirect: "error" });
    if (!answer.ok) return null;
    const { start, matches } = await answer.json();
    const from = [...text].slice(0, start).join("").length;
    return { from, options: matches.map((label) => ({ label })), validFor: /^[\p{L}\d_]*$/u };
  } catch {
    return null; // the server is not there, or the visitor has signed out
  }
}

// Return the names of the code in the editor, and those of the session or else of Python.
async function complete(context, form) {
  if (form.elements.language.value !== "python") return completeAnyWord(context);
  const place = form.elements.place?.selectedOptions[0]?.dataset.complete;
  const found = await askSession(context, form.dataset.complete ?? place);
  const more = [localCompletionSource(context), found ? null : globalCompletion(context)].filter(Boolean);
  if (!found?.options.length) return more.length > 1 ? { ...more[0], options: more.flatMap((each) => each.options) } : more[0] ?? null;
  const known = new Set(found.options.map((option) => option.label));
  const own = more.filter((each) => each.from === found.from).flatMap((each) => each.options);
  return { ...found, options: [...found.options, ...own.filter((option) => !known.has(option.label))] };
}

// Complete a name before the cursor, or indent.
function completeOrIndent(view) {
  if (acceptCompletion(view)) return true;
  const { head, empty } = view.state.selection.main;
  if (!empty) return indentMore(view);
  const line = view.state.doc.lineAt(head);
  const before = line.text.slice(0, head - line.from);
  if (/[\p{L}\d_.]$/u.test(before)) return startCompletion(view);
  view.dispatch(view.state.replaceSelection(" ".repeat(INDENT - (before.length % INDENT))));
  return true;
}

function open(field) {
  const { form } = field;
  const hint = document.getElementById("code-hint");
  const host = document.createElement("div");
  host.className = "editor";
  field.before(host);
  const language = new Compartment();
  const chosen = () => LANGUAGES[form.elements.language.value] ?? [];
  const run = () => {
    form.requestSubmit();
    return true;
  };
  // In a shadow root, the styles of the editor are style sheets of a script, which the policy allows.
  const root = host.attachShadow({ mode: "open" });
  const view = new EditorView({
    root,
    parent: root,
    state: EditorState.create({
      doc: field.value,
      extensions: [
        lineNumbers(), highlightSpecialChars(), history(), drawSelection(), indentOnInput(), bracketMatching(),
        closeBrackets(), highlightActiveLine(), highlightActiveLineGutter(), indentUnit.of(" ".repeat(INDENT)),
        EditorState.tabSize.of(INDENT), syntaxHighlighting(COLOURS), THEME, language.of(chosen()),
        EditorView.contentAttributes.of({ "aria-label": "Code", "aria-description": HINT }),
        autocompletion({ override: [(context) => complete(context, form)] }),
        Prec.highest(keymap.of([
          { key: "Mod-Enter", run },
          { key: "Tab", run: completeOrIndent, shift: indentLess },
        ])),
        keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...historyKeymap]),
      ],
    }),
  });
  const isUsed = document.activeElement === field || location.hash === "#code";
  field.hidden = true;
  field.required = false; // browsers cannot show what is wrong with a hidden field
  hint.textContent = HINT;
  form.elements.language.addEventListener("change", () => view.dispatch({ effects: language.reconfigure(chosen()) }));
  form.addEventListener("formdata", (event) => event.formData.set("code", view.state.doc.toString()));
  form.addEventListener("submit", (event) => {
    if (view.state.doc.toString().trim()) return;
    event.preventDefault();
    view.focus();
    document.getElementById("announcement").textContent = "There is no code to run.";
  });
  document.querySelector("label[for=code]").addEventListener("click", () => view.focus());
  if (isUsed) view.focus();
}

open(document.getElementById("code"));
