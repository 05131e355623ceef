// Takes a photo with the camera of this device and puts it into a file field, as if it had been chosen.

const ERRORS = {
  NotAllowedError: 'This page may not use the camera. Allow it in your browser settings, then try again.',
  NotFoundError: 'This device has no camera.',
  NotReadableError: 'The camera is in use by another program. Close it, then try again.',
};

/** Shows `button` if there may be a camera: browsers offer it to HTTPS pages and pages of this computer only. */
export function startCamera(button, file) {
  if (!button || !navigator.mediaDevices?.getUserMedia) return;
  const dialog = document.getElementById('camera-dialog');
  const video = dialog.querySelector('video');
  const take = dialog.querySelector('#take-photo');
  const failure = dialog.querySelector('[role="alert"]');
  let stream = null;
  button.parentElement.hidden = false;

  button.addEventListener('click', async () => {
    failure.hidden = true;
    video.hidden = false;
    dialog.showModal();
    try {
      const opened = await navigator.mediaDevices.getUserMedia({ video: { facingMode: 'environment', width: { ideal: 1920 } } });
      if (!dialog.open) return stop(opened); // canceled meanwhile
      stream = opened;
      video.srcObject = stream;
    } catch (error) {
      video.hidden = true;
      failure.textContent = ERRORS[error.name] ?? `The camera cannot be used: ${error.message}`;
      failure.hidden = false;
    }
  });
  video.addEventListener('playing', () => {
    take.disabled = false;
    take.focus();
  });
  take.addEventListener('click', () => {
    const canvas = document.createElement('canvas');
    [canvas.width, canvas.height] = [video.videoWidth, video.videoHeight];
    canvas.getContext('2d').drawImage(video, 0, 0);
    canvas.toBlob((photo) => {
      const chosen = new DataTransfer();
      chosen.items.add(new File([photo], 'photo.jpg', { type: 'image/jpeg' }));
      file.files = chosen.files;
      dialog.close();
      file.dispatchEvent(new Event('change', { bubbles: true }));
    }, 'image/jpeg', 0.95);
  });
  dialog.addEventListener('close', () => {
    if (stream) stop(stream);
    stream = video.srcObject = null;
    take.disabled = true;
  });
}

function stop(stream) {
  for (const track of stream.getTracks()) track.stop();
}
