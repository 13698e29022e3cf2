// A copy button on every block of code. Of code at a prompt (>>> or $) only the input is copied.
(function () {
  "use strict";

  function textToCopy(block) {
    const lines = block.textContent.replace(/\n$/, "").split("\n");
    const prompt = lines.some((line) => line.startsWith(">>> ")) ? /^(>>>|\.\.\.) ?/ : /^\$ /;
    const input = lines.filter((line) => prompt.test(line));
    return (input.length ? input.map((line) => line.replace(prompt, "")) : lines).join("\n");
  }

  function addButton(block) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy-button";
    button.textContent = "Copy";
    button.setAttribute("aria-label", "Copy this code");
    button.addEventListener("click", async function () {
      try {
        await navigator.clipboard.writeText(textToCopy(block));
        button.textContent = "Copied";
      } catch (error) {
        button.textContent = "Select and copy";
      }
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
    block.parentElement.classList.add("has-copy-button");
    block.parentElement.appendChild(button);
  }

  document.addEventListener("DOMContentLoaded", function () {
    document.querySelectorAll("div.highlight > pre").forEach(function (block) {
      if (!block.closest(".cell_output, .highlight-text, .highlight-none")) addButton(block);
    });
  });
})();
