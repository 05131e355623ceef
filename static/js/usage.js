// The resource usage of the training.

import { bytes } from './format.js';

/** Fills `panel` from {cpu_percent, memory_bytes, device, gpus: [{name, memory_used, memory_total, utilization, temperature}]}. */
export function showUsage(panel, { cpu_percent: cpu, memory_bytes: memory, device, gpus = [] }) {
  panel.hidden = false;
  if (device) panel.querySelector('[data-device]').textContent = device;
  const gauges = [
    gauge('CPU', `${Math.round(cpu)}% of a core`),
    gauge('Memory', bytes(memory)),
    ...gpus.flatMap((gpu) => gpuGauges(gpu, gpus.length > 1)),
  ];
  panel.querySelector('[data-gauges]').replaceChildren(...gauges);
}

function gpuGauges(gpu, several) {
  const prefix = several ? `${gpu.name}: ` : 'GPU ';
  const gauges = [];
  if (known(gpu.utilization)) gauges.push(gauge(`${prefix}load`, `${gpu.utilization}%`, gpu.utilization));
  if (known(gpu.memory_used) && gpu.memory_total) {
    gauges.push(gauge(`${prefix}memory`, `${bytes(gpu.memory_used)} of ${bytes(gpu.memory_total)}`, (100 * gpu.memory_used) / gpu.memory_total));
  }
  if (known(gpu.temperature)) gauges.push(gauge(`${prefix}temperature`, `${gpu.temperature} °C`));
  return gauges;
}

const known = (value) => value !== null && value !== undefined;

function gauge(title, words, share = null) {
  const row = document.createElement('div');
  row.className = 'gauge';
  const name = document.createElement('span');
  name.className = 'muted';
  name.textContent = title;
  const value = document.createElement('span');
  value.className = 'number';
  value.textContent = words;
  row.append(name, value);
  if (share !== null) {
    const bar = document.createElement('span');
    bar.className = 'progress';
    bar.setAttribute('aria-hidden', 'true');
    const fill = document.createElement('span');
    fill.className = 'progress-fill';
    fill.style.setProperty('--value', share);
    bar.append(fill);
    row.append(bar);
  }
  return row;
}
