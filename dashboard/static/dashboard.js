// Loads the page again now and then, and puts its live parts in place of the old ones. It also copies, sorts, filters, shows
// local times and has shortcuts. Without this file a page shows the moment at which it was loaded, and everything else works.
"use strict";

const helpers = (() => {
  const localKey = "postbox-local-times";
  const local = document.getElementById("local");
  const shortcuts = document.getElementById("shortcuts");
  const find = document.getElementById("find");
  let sorted = null; // the label of a table, a column and whether it is turned round

  const button = (text, label, act) => {
    const made = document.createElement("button");
    Object.assign(made, { type: "button", className: "quiet", textContent: text, onclick: act });
    made.setAttribute("aria-label", label);
    return made;
  };

  const times = () => {
    const on = localStorage.getItem(localKey) === "yes";
    local.setAttribute("aria-pressed", String(on));
    document.getElementById("zone").textContent = on ? "Times of lists are local, others in UTC." : "Times are in UTC.";
    for (const time of document.querySelectorAll("time[datetime]")) {
      const [utc, ago] = (time.dataset.utc ||= time.textContent).split(" · ");
      if (ago) {
        const at = new Date(time.dateTime);
        const clock = at.toLocaleString("sv").replace(new Date().toLocaleDateString("sv") + " ", "");
        time.textContent = (on ? clock : utc) + " · " + ago;
      }
    }
  };

  const sort = () => {
    const table = sorted && [...document.querySelectorAll("main table")][sorted.table];
    const body = table && table.tBodies[0];
    if (!body) {
      return;
    }
    const value = (row) => {
      const cell = row.cells[sorted.column];
      const time = cell && cell.querySelector("time");
      return time ? time.dateTime : cell ? cell.textContent.trim().replaceAll(",", "") : "";
    };
    const compare = new Intl.Collator("en", { numeric: true }).compare;
    body.append(...[...body.rows].sort((a, b) => compare(value(a), value(b)) * sorted.turn));
    [...table.tHead.rows[0].cells].forEach((cell, i) => {
      cell.ariaSort = i !== sorted.column ? null : sorted.turn > 0 ? "ascending" : "descending";
    });
  };

  const dressTable = (table, n) => {
    const heads = table.tHead ? [...table.tHead.rows[0].cells] : [];
    for (const row of table.tBodies[0].rows) {
      [...row.cells].forEach((cell, i) => {
        if (cell.colSpan === 1 && heads[i]) {
          cell.dataset.label = heads[i].firstChild?.textContent ?? "";
        }
      });
    }
    heads.forEach((head, i) => {
      if (head.scope && table.tBodies[0].rows.length > 1 && !head.querySelector("button")) {
        const by = head.textContent;
        head.replaceChildren(button(by, "Sort this page by " + by, () => {
          sorted = { table: n, column: i, turn: sorted && sorted.table === n && sorted.column === i ? -sorted.turn : 1 };
          sort();
        }));
      }
    });
    table.classList.add("dressed");
  };

  const filtered = () => document.querySelectorAll("main .card, main > section[aria-label]");
  const filter = () => {
    const field = document.getElementById("narrow");
    for (const part of field ? filtered() : []) {
      part.hidden = !part.textContent.toLowerCase().includes(field.value.toLowerCase());
    }
  };

  // Makes the page, or the parts of it that were replaced, ready.
  const dress = () => {
    document.querySelectorAll("main table").forEach(dressTable);
    for (const of of document.querySelectorAll(".copy")) {
      if (!of.nextElementSibling || of.nextElementSibling.className !== "quiet") {
        of.after(" ", button("Copy", "Copy " + of.textContent, async (event) => {
          const pressed = event.currentTarget;
          await navigator.clipboard.writeText(of.textContent);
          pressed.textContent = "Copied";
          if (event.detail) {
            pressed.blur(); // what has the focus is not updated
          }
        }));
      }
    }
    if (filtered().length > 8 && !document.getElementById("narrow")) {
      const label = document.createElement("label");
      label.className = "narrow";
      label.append("Only those with ", Object.assign(document.createElement("input"), { id: "narrow", type: "search", oninput: filter }));
      document.querySelector("main h1").after(label);
    }
    sort();
    filter();
    times();
  };

  local.onclick = () => {
    localStorage.setItem(localKey, localStorage.getItem(localKey) === "yes" ? "no" : "yes");
    times();
  };
  document.getElementById("keyboard").onclick = () => shortcuts.showModal();
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || shortcuts.open || event.target.closest("input, select, textarea")) {
      return;
    }
    const act = document.querySelector("#acts a, #acts button, #acts summary") || document.querySelector("main li a, main form button");
    const page = { o: "./", m: "messages", d: "letters", k: "keys" }[event.key];
    const focus = { "/": find, a: act }[event.key];
    if (focus) {
      focus.focus();
    } else if (event.key === "?") {
      shortcuts.showModal();
    } else if (page && find) {
      location.assign(page);
    } else {
      return;
    }
    event.preventDefault();
  });
  document.getElementById("helpers").hidden = false;
  dress();
  return { dress };
})();

(() => {
  const pauseKey = "postbox-updates-paused";
  const every = Number(document.body.dataset.refresh);
  const status = document.getElementById("live-status");
  const toggle = document.getElementById("live-toggle");
  const live = () => [...document.querySelectorAll("[data-live]")];
  if (!every || !toggle || live().length === 0) {
    return;
  }

  let paused = sessionStorage.getItem(pauseKey) === "yes";
  let wait = every;

  const say = (text) => {
    if (status.textContent !== text) {
      status.textContent = text;
    }
  };

  const show = () => {
    toggle.setAttribute("aria-pressed", String(paused));
    toggle.textContent = paused ? "Resume updates" : "Pause updates";
    say(paused ? "Updates are paused." : "This page updates itself.");
  };

  // A part that the user works with stays: a form or a link that has the focus, an open form, or a selected text.
  const isInUse = (part) => {
    const selection = document.getSelection();
    const selects = selection && !selection.isCollapsed && part.contains(selection.anchorNode);
    return selects || (part.contains(document.activeElement) && document.activeElement.matches("a, button, input, select, textarea, summary")) ||
      part.querySelector("details[open]") !== null;
  };

  // Scrolled boxes keep their position.
  const replace = (old, fresh) => {
    const scrolled = [...old.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
    const focused = [...old.querySelectorAll("[tabindex]")].indexOf(document.activeElement);
    old.replaceChildren(...document.importNode(fresh, true).childNodes);
    old.querySelectorAll(".scroll").forEach((box, i) => {
      box.scrollLeft = scrolled[i] || 0;
    });
    const again = old.querySelectorAll("[tabindex]")[focused];
    if (again) {
      again.focus({ preventScroll: true });
    }
  };

  const update = async () => {
    const response = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store", redirect: "error" });
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    if (!response.ok) {
      const title = page.querySelector("h1");
      throw new Error(title ? title.textContent : "The dashboard answered with status " + response.status);
    }
    const fresh = new Map([...page.querySelectorAll("[data-live]")].map((part) => [part.dataset.live, part]));
    if (live().some((part) => part.dataset.live.startsWith("problem"))) {
      location.reload(); // what was wrong is over
      return;
    }
    for (const part of live()) {
      if (fresh.has(part.dataset.live) && !isInUse(part)) {
        replace(part, fresh.get(part.dataset.live));
      }
    }
    helpers.dress();
    const made = page.querySelector("footer time");
    if (made) {
      document.querySelector("footer time").replaceWith(document.importNode(made, true));
    }
  };

  const tick = async () => {
    if (!paused && !document.hidden) {
      try {
        await update();
        wait = every;
        document.body.classList.remove("stale");
        if (!paused) {
          say("This page updates itself.");
        }
      } catch (problem) {
        wait = Math.min(wait * 2, 60000);
        document.body.classList.add("stale");
        say("Not updated: " + problem.message + ".");
      }
    }
    setTimeout(tick, wait);
  };

  toggle.addEventListener("click", () => {
    paused = !paused;
    sessionStorage.setItem(pauseKey, paused ? "yes" : "no");
    show();
  });
  toggle.closest("[hidden]").hidden = false;
  show();
  setTimeout(tick, wait);
})();
