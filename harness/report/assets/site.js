"use strict";
// Filters of the matrix, kept in the address behind "#", and the buttons that copy a command. All that a record brought is read as text.
(() => {
  for (const button of document.querySelectorAll("button[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const command = button.parentElement.querySelector("pre");
      getSelection().selectAllChildren(command);
      try { await navigator.clipboard.writeText(command.textContent); button.textContent = "copied"; }
      catch { button.textContent = "selected"; }
    });
  }

  const form = document.querySelector(".filters");
  if (!form) return;
  const text = form.querySelector("input"), kind = form.querySelector("[name=kind]"), engine = form.querySelector("[name=engine]");
  const chips = [...form.querySelectorAll("[data-verdict]")], told = form.querySelector("output");
  const boards = [...document.querySelectorAll(".board")].map(board => ({
    board, kind: board.dataset.kind,
    heads: [...board.querySelectorAll("thead .engine")],
    groups: [...board.querySelectorAll("tbody")].map(body => ({
      body, rows: [...body.querySelectorAll("tr:not(.group)")].map(row => ({
        row, words: row.cells[0].textContent.toLowerCase(), cells: [...row.cells].slice(1), verdicts: [...row.cells].slice(1).map(cell => cell.className),
      })),
      head: body.querySelector(".group"),
    })),
  }));

  const pressed = () => chips.filter(chip => chip.getAttribute("aria-pressed") === "true").map(chip => chip.dataset.verdict);
  const set = (node, hidden) => { if (node.hidden !== hidden) node.hidden = hidden; };

  function apply() {
    const words = text.value.toLowerCase().split(/\s+/).filter(Boolean), verdicts = pressed();
    let shown = 0, all = 0;
    for (const { board, kind: own, heads, groups } of boards) {
      const columns = heads.map(head => !engine.value || head.dataset.engine === engine.value);
      const off = (kind.value && kind.value !== own) || !columns.some(Boolean);
      heads.forEach((head, i) => set(head, !columns[i]));
      let any = false;
      for (const { body, rows, head } of groups) {
        let some = false;
        for (const { row, words: own, cells, verdicts: seen } of rows) {
          all++;
          const match = !off && words.every(word => own.includes(word)) &&
            seen.some((verdict, i) => columns[i] && verdict && (!verdicts.length || verdicts.includes(verdict)));
          set(row, !match);
          if (match) { some = any = true; shown++; cells.forEach((cell, i) => set(cell, !columns[i])); }
        }
        [...head.cells].slice(1).forEach((cell, i) => set(cell, !columns[i]));
        set(body, !some);
      }
      set(board, !any);
    }
    told.textContent = shown === all ? `${all} claims` : `${shown} of ${all} claims`;
    document.querySelector(".empty").hidden = shown > 0;
  }

  function write() {
    const state = new URLSearchParams();
    if (text.value) state.set("q", text.value);
    if (kind.value) state.set("kind", kind.value);
    if (engine.value) state.set("engine", engine.value);
    if (pressed().length) state.set("verdict", pressed().join(","));
    history.replaceState(null, "", "#" + (state.toString() || "matrix"));
    apply();
  }

  function read() {
    const state = new URLSearchParams(location.hash.slice(1)), verdicts = (state.get("verdict") || "").split(",");
    text.value = state.get("q") || "";
    for (const [select, name] of [[kind, "kind"], [engine, "engine"]]) {
      const wanted = state.get(name) || "";
      select.value = [...select.options].some(option => option.value === wanted) ? wanted : "";
    }
    for (const chip of chips) chip.setAttribute("aria-pressed", String(verdicts.includes(chip.dataset.verdict)));
    apply();
  }

  const under = () => document.documentElement.style.setProperty("--under", form.offsetHeight + "px");
  for (const chip of chips) chip.addEventListener("click", () => {
    chip.setAttribute("aria-pressed", String(chip.getAttribute("aria-pressed") !== "true"));
    write();
  });
  form.addEventListener("input", write);
  form.addEventListener("submit", event => event.preventDefault());
  form.querySelector("[data-clear]").addEventListener("click", () => {
    history.replaceState(null, "", "#matrix");
    read();
    text.focus();
  });
  document.addEventListener("keydown", event => {
    if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) { event.preventDefault(); text.focus(); }
  });
  addEventListener("hashchange", read);
  addEventListener("resize", under);
  form.hidden = false;
  under();
  read();
})();
