'use strict';
// Follows the greeting. The pod is replaced when the greeting changes, so the same address is asked again and again; as long as nothing changed the
// server answers "304 Not Modified" without a body. The server alone renders: the new page is parsed, and only its greeting is taken over.
(() => {
  const every = 2000, patience = 5000, failuresToTell = 2;
  const balloon = document.getElementById('balloon');
  const greeting = document.getElementById('greeting');
  const state = document.getElementById('state');
  const cow = document.getElementById('cow');
  let failures = 0, asking = false, timer;

  function show(text) {
    const page = new DOMParser().parseFromString(text, 'text/html');
    const said = page.getElementById('greeting');
    if (!said) throw new Error('this is not a cow');
    if (said.textContent === greeting.textContent) return;
    greeting.textContent = said.textContent;
    balloon.className = page.getElementById('balloon').className;
    document.title = page.title;
    cow.classList.remove('speaks');
    requestAnimationFrame(() => requestAnimationFrame(() => cow.classList.add('speaks')));
  }

  function tell(text) {
    if (state.textContent !== text) state.textContent = text;
  }

  async function ask() {
    clearTimeout(timer);
    if (asking || document.hidden) return;
    asking = true;
    try {
      const answer = await fetch(location.pathname, {cache: 'no-cache', signal: AbortSignal.timeout(patience)});
      if (!answer.ok) throw new Error(answer.statusText);
      show(await answer.text());
      failures = 0;
      tell('Following: a new greeting shows up by itself.');
    } catch {
      failures++;
      if (failures >= failuresToTell) tell('The cow does not answer. Asking again…');
    }
    asking = false;
    timer = setTimeout(ask, every);
  }

  document.addEventListener('visibilitychange', ask);
  ask();
})();
