// Loads the page again now and then, and puts its live parts in place of the old ones. Without this file everything works
// except that: a page then shows the moment at which it was loaded.
"use strict";

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
