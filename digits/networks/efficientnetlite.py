# EfficientNet-Lite0: accurate on photos, and fast without a GPU.
#
# Designed for 224x224 color, random crops from 256x256; smaller images are enlarged. 4,694,024
# parameters for 1000 classes, 42,016 of them moving averages.
# Recommended settings: Adam, learning rate 0.001 with cosine decay, batches of 32, 100 epochs, no mean subtraction
# (the network normalizes its input), crop 224, random horizontal flips.
#
# paper: Google, 2020, https://github.com/tensorflow/tpu/tree/master/models/official/efficientnet/lite
# settings: solver_type=ADAM learning_rate=0.001 lr_policy=cosine lr_warmup=5 batch_size=32 train_epochs=100
# settings: use_mean=none crop_size=224 aug_flip=fliplr
# kinds: image-classification image-regression image-multilabel
# pretrained: efficientnetlite

# Smaller images are enlarged until their shorter side has this number of pixels: the network halves them five times.
SMALLEST = 128


class UserModel(Tower):
    @model_property
    def inference(self):
        photos = self.photos(self.x)
        net = digits.EfficientNetLite0(
            input_shape=photos.shape[1:],
            classes=self.nclasses,
            classifier_activation=None,  # logits, without softmax
        )
        return digits.scale_output(net(photos, training=self.is_training))

    def photos(self, x):
        """Convert to color images of at least the smallest size."""
        height, width, channels = self.input_shape
        if channels == 1:
            x = tf.repeat(x, 3, axis=3)
        factor = SMALLEST / min(height, width)
        return tf.image.resize(x, [round(height * factor), round(width * factor)]) if factor > 1 else x

    @model_property
    def loss(self):
        if self.target.classes:
            accuracy = digits.classification_accuracy(self.inference, self.y)
            self.summaries.append(tf.summary.scalar("accuracy", accuracy))
        return digits.loss(self.inference, self.y)
