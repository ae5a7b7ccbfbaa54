// Faults of the page as it is drawn now: sideways scroll, text over other text or out of its box, pale text and shapes.
(() => {
  const faults = [];
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) faults.push(`sideways scroll: ${root.scrollWidth} of ${root.clientWidth}`);

  // --- places of texts ---
  const texts = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    if (!node.data.trim() || parent.closest("option, noscript, .skip") || !parent.checkVisibility()) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const box = parent.closest("td, th, dd, dt, p, li, h1, h2, h3, label, figcaption, footer").getBoundingClientRect();
    for (const rect of range.getClientRects()) {
      if (rect.width === 0) continue;
      texts.push({ node, rect });
      if (rect.right > box.right + 1 || rect.left < box.left - 1) faults.push(`out of its box: ${node.data.slice(0, 40)}`);
    }
  }
  texts.sort((a, b) => a.rect.top - b.rect.top);
  texts.forEach((a, at) => {
    for (let other = at + 1; other < texts.length && texts[other].rect.top < a.rect.bottom - 3; other += 1) {
      const b = texts[other];
      const wide = Math.min(a.rect.right, b.rect.right) - Math.max(a.rect.left, b.rect.left);
      const high = Math.min(a.rect.bottom, b.rect.bottom) - Math.max(a.rect.top, b.rect.top);
      if (a.node !== b.node && wide > 2 && high > 3) faults.push(`overlap: ${a.node.data.slice(0, 30)} / ${b.node.data.slice(0, 30)}`);
    }
  });

  // --- contrast (WCAG 1.4.3 and 1.4.11) ---
  const channels = (colour) => colour.match(/[\d.]+/g).map(Number);
  const linear = (value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const contrast = (one, other) => {
    const [a, b] = [light(one), light(other)].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  };
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const colour = channels(getComputedStyle(node).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const check = (what, one, other, least) => {
    const found = contrast(one, other);
    if (found < least) faults.push(`${what}: contrast ${found.toFixed(2)} of ${least}`);
  };
  for (const node of new Set(texts.map((text) => text.node.parentElement))) {
    check(`text ${node.textContent.slice(0, 30)}`, channels(getComputedStyle(node).color), ground(node), 4.5);
  }
  const paint = (node) => {
    const style = getComputedStyle(node);
    return channels(style.fill !== "none" && node.tagName !== "line" ? style.fill : style.stroke);
  };
  for (const svg of document.querySelectorAll("svg")) {
    if (!svg.checkVisibility()) continue;
    const used = svg.querySelector(".used");
    for (const part of svg.querySelectorAll(".used, .wants, .now, .share, .short")) {
      check(`${part.classList} on its track`, paint(part), paint(svg.querySelector(".track")), 3);
      check(`${part.classList} on the page`, paint(part), ground(svg), 3);
      if (used && part.matches(".now, .share")) check(`${part.classList} on used`, paint(part), paint(used), 3);
    }
  }
  for (const key of document.querySelectorAll(".key")) {
    const style = getComputedStyle(key);
    const colour = key.matches(".wants") ? style.borderTopColor : style.backgroundColor;
    check(`${key.classList}`, channels(colour), ground(key.parentElement), 3);
  }
  return [...new Set(faults)];
})()
